"""What both directions share: remote refs to shaped values, whom to wake and when, generated state, what is told."""
