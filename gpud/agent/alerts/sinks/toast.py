"""A toast on the Windows desktop, through Windows PowerShell 5.1 and WSL's interop.

PowerShell 7 has no WinRT classes, and a toast needs an application that Windows knows:
PowerShell's own is the usual loan. The script is a constant; title and text come on its stdin as
base64 of JSON, and are escaped for XML where they become XML.
"""

from __future__ import annotations

import base64
import json
from functools import partial
from typing import TYPE_CHECKING, Final

from gpud.agent import children
from gpud.agent.alerts.message import body, cut, title
from gpud.agent.alerts.sink import Program
from gpud.agent.telemetry import windows
from gpud.core.errors import DeliveryError, TelemetryError

if TYPE_CHECKING:
    from gpud.agent.alerts.message import Message
    from gpud.agent.alerts.sink import Context, Sink

NAME = "toast"
INSIDE: Final = "Windows/System32/WindowsPowerShell/v1.0/powershell.exe"
LONGEST_TITLE, LONGEST_TEXT = 64, 400
"""Windows shows four lines; and all of it fits into a pipe."""
SHOWN, SWITCHED_OFF = "shown", 3
LOOK: Final = (
    "gpud alerts test toast shows what PowerShell says; [alerts] toast = false does without"
)
SCRIPT: Final = r"""
$ErrorActionPreference = 'Stop'
try {
  $input64 = @($input) -join ''
  if (-not $input64) { $input64 = [Console]::In.ReadToEnd() }
  $bytes = [Convert]::FromBase64String($input64.Trim())
  $texts = [Text.Encoding]::UTF8.GetString($bytes) | ConvertFrom-Json
  [void][Windows.UI.Notifications.ToastNotificationManager, Windows.UI.Notifications, ContentType = WindowsRuntime]
  [void][Windows.Data.Xml.Dom.XmlDocument, Windows.Data.Xml.Dom.XmlDocument, ContentType = WindowsRuntime]
  $title = [Security.SecurityElement]::Escape([string]$texts.title)
  $text = [Security.SecurityElement]::Escape([string]$texts.text)
  $xml = New-Object Windows.Data.Xml.Dom.XmlDocument
  $xml.LoadXml('<toast><visual><binding template="ToastGeneric"><text>' + $title + '</text><text>' + $text + '</text></binding></visual></toast>')
  $app = '{1AC14E77-02E7-4E5D-B744-2EB1AE5198B7}\WindowsPowerShell\v1.0\powershell.exe'
  $notifier = [Windows.UI.Notifications.ToastNotificationManager]::CreateToastNotifier($app)
  $setting = 'Enabled'
  try { $setting = [string]$notifier.Setting } catch { }
  if ($setting -ne 'Enabled') { [Console]::Out.Write($setting); exit 3 }
  $notifier.Show((New-Object Windows.UI.Notifications.ToastNotification $xml))
  [Console]::Out.Write('shown')
  exit 0
} catch { [Console]::Error.Write($_.Exception.Message); exit 1 }
"""  # noqa: E501  # PowerShell's own
ARGUMENTS: Final = (
    *("-NoLogo", "-NoProfile", "-NonInteractive", "-InputFormat", "Text", "-OutputFormat", "Text"),
    *("-EncodedCommand", base64.b64encode(SCRIPT.encode("utf-16-le")).decode()),
)
_NOT_IN_XML: Final = {0xFFFE: "?", 0xFFFF: "?"} | dict.fromkeys({*range(32)} - {9, 10}, "?")


def create(context: Context) -> tuple[Sink, ...]:
    """Make the sink where it is switched on."""
    return (ToastSink(context),) if context.settings.alerts.toast else ()


def data(message: Message) -> bytes:
    """Give title and text as the script reads them: one line of ASCII."""
    texts = {
        "title": cut(title(message), LONGEST_TITLE).translate(_NOT_IN_XML),
        "text": cut(body(message, details=False), LONGEST_TEXT).translate(_NOT_IN_XML),
    }
    return base64.b64encode(json.dumps(texts, ensure_ascii=False).encode()) + b"\n"


class ToastSink:
    """Windows PowerShell, which shows the toast."""

    shows = False

    def __init__(self, context: Context) -> None:
        self.name = NAME
        self.place = "the Windows desktop"
        self._context = context
        self._program = Program(context, "PowerShell", LOOK)

    async def send(self, message: Message) -> None:
        """Start PowerShell, and take it for delivered when it says that it was shown."""
        sysroot = self._context.settings.sysroot
        place = windows.place(sysroot, INSIDE)
        try:
            environment = windows.environment(sysroot)
        except TelemetryError as error:
            raise DeliveryError(str(error), reason=error.reason, fix=error.fix) from error
        start = partial(
            children.run_program, place, ARGUMENTS, environment=environment, stdin=data(message)
        )
        ended = await self._program.run(start)
        answer = windows.text(ended.stdout)
        if ended.code == children.NOT_THERE:
            raise self._program.failure("absent", f"is not there: no {place}")
        if ended.code == SWITCHED_OFF:
            fix = "in Windows: Settings, System, Notifications; switch on those of PowerShell"
            words = "may show no notifications in Windows"
            raise self._program.failure("switched_off", words, answer, fix)
        if ended.code != 0 or SHOWN not in answer:
            words = f"ended with {ended.code} and showed nothing"
            raise self._program.failure("failed", words, windows.text(ended.stderr))
