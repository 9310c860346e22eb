"""What was found to differ between granules: refused by policy, or kept as keys that tell eras apart."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from drystone.errors import CombineError
from drystone.model.options import DifferenceOptions
from drystone.plan.compare import Variants

__all__ = ["LEAVE", "Findings", "changed"]

LEAVE = "leave the variable out with combine: {variables: […]}, or split the archive where it changes"

# what no rewriting of numbers can mend, so that only labels or groups are left
_LABELS = ("units", "attributes")


class Findings:
    """Collects differences of one array, variant by variant.

    Parameters
    ----------
    variants
        To compare; the first granule's is the base.
    policies
        By topic: ``codec``, ``packing``, ``fill``, ``dtype``, ``units``, ``time``, ``attributes``.
    """

    def __init__(self, variants: Variants, policies: DifferenceOptions) -> None:
        self.variants = variants
        self.notes: list[str] = []
        self.apart: str | None = None
        self._told: dict[str, tuple[str, dict[int, str]]] = {}
        self._policies: Mapping[str, str] = {
            "codec": policies.codec,
            "packing": policies.packing,
            "fill": policies.fill,
            "dtype": policies.dtype,
            "units": policies.units,
            "time": policies.time,
            "attributes": policies.attributes,
        }
        self._keys: dict[int, dict[str, str]] = {v: {} for v in variants.used}

    def policy(self, topic: str) -> str:
        """What the user wants."""
        return self._policies[topic]

    def find(self, topic: str, what: str, said: Callable[[int], str], shown: Callable[[int], str] | None = None) -> bool:
        """Whether variants differ in ``said``; kept in their keys where the topic's policy lets them.

        Raises
        ------
        CombineError
            The policy is to refuse, or nothing can be done.
        """
        variants = self.variants
        texts = {v: said(v) for v in variants.used}
        other = next((v for v in variants.used if texts[v] != texts[variants.base]), None)
        if other is None:
            return False
        show = shown or said
        policy = self.policy(topic)
        label = topic in _LABELS
        if policy == "refuse" or (label and policy not in ("first", "era")):
            raise variants.refuse(what, other, show(variants.base), show(other), ways(topic))
        if label and policy == "first":
            one, two = variants.granules[variants.base], variants.granules[other]
            self.notes.append(
                f"{variants.path}: {what} differs between granules: {show(variants.base)} in {one} is taken for all, "
                f"{show(other)} in {two} is not, as combine: {{differences: {{{topic}: first}}}} says"
            )
            return True
        self.tell(what, texts.__getitem__)
        self._told[what] = topic, {v: show(v) for v in variants.used}
        if label and self.apart is None:
            self.apart = self._text(other, [what])
        return True

    @property
    def by_era(self) -> bool:
        """Whether every difference may be told apart by groups."""
        topics = {topic for topic, _ in self._told.values()}
        untold = {w for key in self._keys.values() for w in key if w not in self._told}
        if any(len({key.get(w) for key in self._keys.values()}) > 1 for w in untold):
            topics.add("codec")  # chunk lengths along joined axes
        return all(self.policy(t) == "era" for t in topics)

    @property
    def storage(self) -> str | None:
        """Why no one virtual array holds all: what the first granule that differs says differently."""
        for v in self.variants.used:
            mine, first = self._keys[v], self._keys[self.variants.base]
            words = [w for w in self._told if mine[w] != first[w]]
            if words:
                return self._text(v, words)
        return None

    def _text(self, other: int, words: list[str]) -> str:
        variants = self.variants
        one, two = variants.granules[variants.base], variants.granules[other]
        shown = [self._told[w][1] for w in words]
        what = "; ".join(f"{w} {s[variants.base]} and {s[other]}" for w, s in zip(words, shown, strict=True))
        topics = list(dict.fromkeys(self._told[w][0] for w in words))
        asked = ", ".join(f"{t}: era" for t in topics if self.policy(t) != "era")
        groups = "as groups" + (f" with combine: {{differences: {{{asked}}}}}" if asked else "")
        store = "" if set(topics) & set(_LABELS) else "as a store (rechunk), or "
        how = "are stored" if topics == ["codec"] else "say it"
        return (
            f"{variants.path}: {one} and {two} {how} differently ({what}), so no one Zarr array describes both; "
            f"publish it {store}{groups}"
        )

    def impossible(self, what: str, said: Callable[[int], str], why: str) -> None:
        """Refuse a difference whatever the policy.

        Raises
        ------
        CombineError
            Variants differ in ``said``.
        """
        variants = self.variants
        for v in variants.used:
            if said(v) != said(variants.base):
                raise variants.refuse(what, v, said(variants.base), said(v), f"{why}; {LEAVE}")

    def refuse(self, what: str, other: int, a: str, b: str, why: str) -> CombineError:
        """The error for a difference that cannot be mended."""
        return self.variants.refuse(what, other, a, b, f"{why}; {LEAVE}")

    def tell(self, what: str, said: Callable[[int], str]) -> None:
        """Put into the keys what tells eras apart and forbids nothing."""
        for v in self.variants.used:
            self._keys[v][what] = said(v)

    def keys(self, count: int) -> tuple[str, ...]:
        """A key for each variant, equal where one virtual array holds both; empty for those that nobody has."""
        return tuple(json.dumps(self._keys[v], sort_keys=True) if v in self._keys else "" for v in range(count))


def ways(topic: str) -> str:
    """The config lines that let a difference through."""
    if topic in _LABELS:
        return (
            f"say combine: {{differences: {{{topic}: first}}}} to take the first granule's where both say one thing, "
            f"{{{topic}: era}} for groups in virtual outputs, or {LEAVE}"
        )
    if topic == "time":
        return f"say combine: {{differences: {{time: rechunk}}}} to count all times from one date, or {LEAVE}"
    wide = ", {fill: widen} to have a number for it that is data nowhere" if topic == "fill" else ""
    return (
        f"say combine: {{differences: {{{topic}: era}}}} for groups in virtual outputs and one array by value in stores, "
        f"{{{topic}: rechunk}} for stores alone{wide}, or {LEAVE}"
    )


def changed(key_a: str, key_b: str) -> tuple[str, ...]:
    """Words for what differs between two keys of :class:`~drystone.plan.differences.Reconciled`.

    Examples
    --------
    >>> changed('{"codecs": "zlib", "scale_factor": "1"}', '{"codecs": "zlib", "scale_factor": "2"}')
    ('scale_factor',)
    """
    a, b = json.loads(key_a or "{}"), json.loads(key_b or "{}")
    return tuple(w for w in dict.fromkeys((*a, *b)) if a.get(w) != b.get(w))
