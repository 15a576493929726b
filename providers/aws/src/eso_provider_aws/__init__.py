"""The AWS provider: Secrets Manager, Parameter Store, Certificate Manager, and two generators."""
