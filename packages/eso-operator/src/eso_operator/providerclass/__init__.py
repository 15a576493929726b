"""Provider classes: what each provider said about itself, and classes that follow from labelled Services.

reconciler   connects to the provider of a class and shows what it answered
outcome      from an answer or an error to the status of the class                        pure
services     a class for every labelled Service
"""
