"""Settings of every test run: API servers for live tests (`--apiserver`), property tests without a clock."""

from hypothesis import settings

pytest_plugins = ["kuberun.testing.plugin"]

settings.register_profile("shared-machine", deadline=None)  # how long an example takes says nothing on a busy machine
settings.load_profile("shared-machine")
