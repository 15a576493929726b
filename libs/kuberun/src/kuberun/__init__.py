"""Controller runtime for Kubernetes in asyncio. It knows nothing about secrets.

Layers, from the top: testing > manager > controller | leader | health > triggers > informer > workqueue | cache > watch
> status | ownership | events > client > source > transport > requests | config > conditions | backoff > meta | errors |
clock. The whole list is in the workspace's import contracts.
"""

from kubebase.lateauthorities import late_authorities

with late_authorities():
    import aiohttp  # noqa: F401 - before another module imports it
