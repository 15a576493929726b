"""The Sprig functions, one family per file."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gotmpl.functions import Func, Load, family

NAMES = {
    "strings": (
        "adler32sum cat contains hasPrefix hasSuffix hello indent initials join lower nindent nospace plural quote "
        "repeat replace sha1sum sha256sum sha512sum sortAlpha split splitList splitn squote substr swapcase toString "
        "toStrings trim trimAll trimPrefix trimSuffix trimall trunc upper"
    ),
    "words": "abbrev abbrevboth camelcase kebabcase snakecase title untitle wrap wrapWith",
    "lists": (
        "all any append chunk compact concat first has initial last list mustAppend mustChunk mustCompact mustFirst "
        "mustHas mustInitial mustLast mustPrepend mustPush mustRest mustReverse mustSlice mustUniq mustWithout prepend "
        "push rest reverse seq slice tuple uniq until untilStep without"
    ),
    "dicts": (
        "deepCopy dict dig get hasKey keys merge mergeOverwrite mustDeepCopy mustMerge mustMergeOverwrite omit pick "
        "pluck set unset values"
    ),
    "defaults": "coalesce default empty fail ternary",
    "numbers": (
        "add add1 add1f addf atoi biggest ceil div divf float64 floor int int64 max maxf min minf mod mul mulf randInt "
        "round sub subf toDecimal"
    ),
    "encoding": "b32dec b32enc b64dec b64enc hexdec",
    "json": "fromJson mustFromJson mustToJson mustToPrettyJson mustToRawJson toJson toPrettyJson toRawJson",
    "paths": "base clean dir ext isAbs osBase osClean osDir osExt osIsAbs",
    "random": "randAlpha randAlphaNum randAscii randNumeric shuffle uuidv4",
    "reflect": "deepEqual kindIs kindOf typeIs typeIsLike typeOf",
    "regexes": (
        "mustRegexFind mustRegexFindAll mustRegexMatch mustRegexReplaceAll mustRegexReplaceAllLiteral mustRegexSplit "
        "regexFind regexFindAll regexMatch regexQuoteMeta regexReplaceAll regexReplaceAllLiteral regexSplit"
    ),
    "semver": "semver semverCompare",
    "urls": "urlJoin urlParse",
    "crypto": "bcrypt decryptAES derivePassword encryptAES genPrivateKey htpasswd randBytes",
}
DATES = (
    "ago date dateInZone dateModify date_in_zone date_modify duration durationRound htmlDate htmlDateInZone "
    "mustDateModify mustToDate must_date_modify now toDate unixEpoch"
)
CERTIFICATES = (
    "buildCustomCert genCA genCAWithKey genSelfSignedCert genSelfSignedCertWithKey genSignedCert genSignedCertWithKey"
)


def families(clock: Callable[[], int]) -> list[tuple[str, Load]]:
    """Return every family; `clock` returns nanoseconds since 1970."""

    def dates() -> Mapping[str, Func]:
        from gotmpl.sprig.dates import with_clock

        return with_clock(clock)

    def certificates() -> Mapping[str, Func]:
        from gotmpl.sprig.certificates import with_clock

        return with_clock(clock)

    plain = [(names, family(f"gotmpl.sprig.{module}")) for module, names in NAMES.items()]
    return [*plain, (DATES, dates), (CERTIFICATES, certificates)]
