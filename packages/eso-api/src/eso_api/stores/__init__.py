"""The provider blocks of v1 stores (`spec.provider.<key>`), one file per provider with a typed block."""
