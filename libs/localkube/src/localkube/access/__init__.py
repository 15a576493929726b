"""Authentication and authorization: certificates, tokens, RBAC and the review kinds."""
