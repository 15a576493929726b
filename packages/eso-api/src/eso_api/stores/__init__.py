"""The provider blocks of v1 stores: `spec.provider.<key>`, one file for each provider whose block is typed."""
