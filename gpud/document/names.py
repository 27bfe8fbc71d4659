"""Names out of bounded sets; a document of another release may have others."""

from typing import Annotated, TypeAlias

import msgspec

from gpud.core.sample import Absent, Backend, Flag, Reason, Skip, Unit

UnitName: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(Unit)})]
BackendName: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(Backend)})]
FlagName: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(Flag)})]
ReasonName: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(Reason)})]
AbsentName: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(Absent)})]
SkipName: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(Skip)})]
