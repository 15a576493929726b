"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from eso_provider_tokens.beyondtrustworkloadcredentialsdynamicsecret import BEYONDTRUST_DYNAMIC_SECRET
from eso_provider_tokens.cloudsmithaccesstoken import CLOUDSMITH_ACCESS_TOKEN
from eso_provider_tokens.grafana import GRAFANA
from eso_provider_tokens.quayaccesstoken import QUAY_ACCESS_TOKEN

KINDS = (QUAY_ACCESS_TOKEN, CLOUDSMITH_ACCESS_TOKEN, GRAFANA, BEYONDTRUST_DYNAMIC_SECRET)
