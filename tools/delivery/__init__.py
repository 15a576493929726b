"""Images and releases: which distributions each image has, one version for all of them, and the files of a release."""
