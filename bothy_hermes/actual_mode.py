"""Whose money the next turn spends, judged from the kind of credential that Hermes resolves.

Layer: rules. A kind that proves nothing gives no mode, and no mode equals none that a run may ask
for: what cannot be proven is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .runtime import ResolvedCredential, Spending
from .wire import Evidence
from .wire_words import BillingMode, EvidenceMethod, KeyType

ANTHROPIC = "anthropic"
"""The one provider whose login stands for a person's own subscription."""


@dataclass(frozen=True, slots=True)
class ActualMode:
    """What was found.

    Attributes:
        mode: The mode, None when nothing proves one.
        provider: Hermes' name of the provider, None when unknown.
        key_type: The kind of key; unknown whenever the mode is.
        base_url: The provider's server, None when Hermes did not say.
    """

    mode: BillingMode | None
    provider: str | None
    key_type: KeyType
    base_url: str | None = field(default=None, repr=False)

    @property
    def evidence(self) -> Evidence:
        """The evidence for the server; kinds and names, never a value."""
        return Evidence(
            provider=self.provider, key_type=self.key_type, method=EvidenceMethod.RESOLVED_CREDENTIALS
        )

    @property
    def spending(self) -> Spending | None:
        """What the model requests of a turn are held to, None when nothing is proven."""
        if self.mode is None or self.provider is None:
            return None
        return Spending(self.mode, self.provider, self.base_url)

    def matches(self, mode: BillingMode) -> bool:
        """Tell whether the next turn is proven to spend in this mode."""
        return self.mode is mode


UNKNOWN = ActualMode(None, None, KeyType.UNKNOWN)
"""Nothing is proven."""


def determine(credential: ResolvedCredential) -> ActualMode:
    """Judge a credential.

    An API key belongs to whoever pays the account it was made in: the organization's, as the operator
    put it there. A login is a person's, and only Anthropic's is known to be one that may be used so.

    Examples:
        >>> determine(ResolvedCredential("anthropic", KeyType.OAUTH)).mode
        <BillingMode.PERSONAL: 'personal'>
    """
    provider, key_type = credential.provider, credential.key_type
    if not provider:
        return UNKNOWN
    if key_type is KeyType.API_KEY:
        return ActualMode(BillingMode.ORGANIZATION, provider, key_type, credential.base_url)
    if key_type is KeyType.OAUTH and provider == ANTHROPIC:
        return ActualMode(BillingMode.PERSONAL, provider, key_type, credential.base_url)
    return UNKNOWN
