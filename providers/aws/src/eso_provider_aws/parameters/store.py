"""An opened store of Parameter Store."""

from __future__ import annotations

from typing import ClassVar

from eso_provider_aws.changes.listings import PARAMETERS
from eso_provider_aws.endpoints import PARAMETER_STORE
from eso_provider_aws.kinds import ParameterStoreConfig
from eso_provider_aws.parameters.finding import ParameterFinder
from eso_provider_aws.parameters.reading import ParameterReader
from eso_provider_aws.parameters.writing import ParameterWriter
from eso_provider_aws.valuestore import ValueFinder, ValueReader, ValueStore, ValueWriter


class ParametersStore(ValueStore[ParameterStoreConfig]):
    """Parameters of one region of one account."""

    SERVICE = PARAMETER_STORE
    SOURCE = PARAMETERS
    API_NAME: ClassVar[str] = "AWS/ParameterStore"

    def parts(self) -> tuple[ValueReader, ValueFinder, ValueWriter]:
        reader = ParameterReader(self.api, self.config.prefix, self.gate)
        return reader, ParameterFinder(self.api, reader), ParameterWriter(self.api, reader)
