"""An opened store of Parameter Store."""

from __future__ import annotations

from typing import ClassVar

from eso_provider_aws.changes.parameters import PARAMETERS
from eso_provider_aws.endpoints import PARAMETER_STORE
from eso_provider_aws.parameters.finding import Finder
from eso_provider_aws.parameters.reading import Reader
from eso_provider_aws.parameters.writing import Writer
from eso_provider_aws.specs import ParameterStoreConfig
from eso_provider_aws.valuestore import Finds, Reads, ValueStore, Writes


class ParametersStore(ValueStore[ParameterStoreConfig]):
    """Parameters of one region of one account."""

    SERVICE = PARAMETER_STORE
    SOURCE = PARAMETERS
    API_NAME: ClassVar[str] = "AWS/ParameterStore"

    def parts(self) -> tuple[Reads, Finds, Writes]:
        reader = Reader(self.api, self.config.prefix, self.gate)
        return reader, Finder(self.api, reader), Writer(self.api, reader)
