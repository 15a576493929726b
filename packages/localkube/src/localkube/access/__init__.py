"""Who is asking and what they may do: certificates, tokens, RBAC and the review kinds."""
