"""Controller runtime for Kubernetes in asyncio. It knows nothing about secrets.

Layers, from the top: testing > manager > health > controller | leader > triggers > informer > workqueue | cache > watch
> status | ownership | events > client > source > transport > requests | config > conditions | backoff > meta | errors |
clock. The whole list is in the workspace's import contracts.
"""
