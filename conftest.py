"""Settings of every test run: the plugin that offers API servers (`--apiserver`)."""

pytest_plugins = ["kuberun.testing.plugin"]
