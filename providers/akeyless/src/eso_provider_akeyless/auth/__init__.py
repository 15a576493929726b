"""The forms of login, and the token that all sessions of an identity share."""
