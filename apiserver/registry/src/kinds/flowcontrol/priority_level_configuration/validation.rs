//! Validation of PriorityLevelConfigurations.

use crate::kinds::flowcontrol::mandatory::{EXEMPT, has_fixed_spec};
use crate::shared::validation::{Errors, Path, one_of, present};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_schema::Ref;

const MAX_QUEUES: i64 = 10_000_000;
/// Bits of a flow's hash that dealing a hand of queues may use.
const MAX_HASH_BITS: i64 = 60;
const KIND: &str = "PriorityLevelConfiguration";
/// Kept a zero through v1beta3 once; no served version means anything by it.
const PRESERVE_ZERO_SHARES: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";
const TYPES: [&str; 2] = ["Exempt", "Limited"];
const RESPONSES: [&str; 2] = ["Queue", "Reject"];
const NOT_NEGATIVE: &str = "must be a non-negative integer";

/// Every problem of a PriorityLevelConfiguration.
pub(crate) fn validate(level: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let annotations = level
        .get("metadata")
        .and_then(|metadata| metadata.get("annotations"));
    if annotations.is_some_and(|annotations| annotations.get(PRESERVE_ZERO_SHARES).is_some()) {
        let detail = format!("annotation '{PRESERVE_ZERO_SHARES}' is forbidden");
        errors.forbidden(&Path::of("metadata").child("annotations"), &detail);
    }
    let path = Path::of("spec");
    let name = level.str_at(&["metadata", "name"]);
    if let Some(own) = level.get("spec") {
        spec(&mut errors, &path, own, name);
        let (ignored, except): (&[&str], _) = if name == EXEMPT {
            (&["exempt"], " except the 'spec.exempt' field")
        } else {
            (&[], "")
        };
        if has_fixed_spec(KIND, level, ignored) == Some(false) {
            let detail = format!("spec of '{name}'{except} must equal the fixed value");
            errors.invalid(&path, Shown(own.to_json()), detail);
        }
        declared(&mut errors, &path, own);
    }
    errors.into_list()
}

fn spec(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, name: &str) {
    let kind = spec.str("type");
    if (name == EXEMPT) != (kind == "Exempt") {
        let detail = "must be 'Exempt' if and only if `name` is 'exempt'";
        errors.invalid(&path.child("type"), kind, detail);
    }
    one_of(errors, path, spec, "type", &TYPES, None);
    match (kind, present(spec, "exempt"), present(spec, "limited")) {
        ("Exempt", Some(exempt), _) => shares(errors, &path.child("exempt"), exempt),
        ("Limited", _, Some(own)) => limited(errors, &path.child("limited"), own),
        _ => {}
    }
}

fn limited(errors: &mut Errors, path: &Path<'_>, limited: Ref<'_>) {
    nominal_shares(errors, path, limited);
    if let Some(response) = limited.get("limitResponse") {
        let at = path.child("limitResponse");
        one_of(errors, &at, response, "type", &RESPONSES, None);
        if response.str("type") == "Queue"
            && let Some(own) = present(response, "queuing")
        {
            queuing(errors, &at.child("queuing"), own);
        }
    }
    lendable_percent(errors, path, limited);
    if let Some(percent) = integer(limited, "borrowingLimitPercent").filter(|percent| *percent < 0) {
        let detail = "if specified, must be a non-negative integer";
        errors.invalid(&path.child("borrowingLimitPercent"), percent, detail);
    }
}

fn shares(errors: &mut Errors, path: &Path<'_>, exempt: Ref<'_>) {
    nominal_shares(errors, path, exempt);
    lendable_percent(errors, path, exempt);
}

fn nominal_shares(errors: &mut Errors, path: &Path<'_>, own: Ref<'_>) {
    const NAME: &str = "nominalConcurrencyShares";
    if let Some(shares) = integer(own, NAME).filter(|shares| *shares < 0) {
        errors.invalid(&path.child(NAME), shares, NOT_NEGATIVE);
    }
}

fn lendable_percent(errors: &mut Errors, path: &Path<'_>, own: Ref<'_>) {
    const NAME: &str = "lendablePercent";
    if let Some(percent) = integer(own, NAME).filter(|percent| !(0..=100).contains(percent)) {
        let detail = "must be between 0 and 100, inclusive";
        errors.invalid(&path.child(NAME), percent, detail);
    }
}

fn queuing(errors: &mut Errors, path: &Path<'_>, queuing: Ref<'_>) {
    const POSITIVE: &str = "must be positive";
    let number = |name| integer(queuing, name).unwrap_or_default();
    let (limit, queues, hand) = (number("queueLengthLimit"), number("queues"), number("handSize"));
    if limit <= 0 {
        errors.invalid(&path.child("queueLengthLimit"), limit, POSITIVE);
    }
    if queues <= 0 {
        errors.invalid(&path.child("queues"), queues, POSITIVE);
    } else if queues > MAX_QUEUES {
        let detail = format!("must not be greater than {MAX_QUEUES}");
        errors.invalid(&path.child("queues"), queues, detail);
    }
    let at = path.child("handSize");
    if hand <= 0 {
        errors.invalid(&at, hand, POSITIVE);
    } else if hand > queues {
        let detail = format!("should not be greater than queues ({queues})");
        errors.invalid(&at, hand, detail);
    } else if !is_within_hash(queues, hand) {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {MAX_HASH_BITS}"
        );
        errors.invalid(&at, hand, detail);
    }
}

/// Reports whether a hash has enough bits for a hand of these queues: upstream's `RequiredEntropyBits`.
fn is_within_hash(queues: i64, hand: i64) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "both are of 32 bits")]
    let bits = ((queues as f64).log2() * hand as f64).ceil();
    #[expect(clippy::cast_precision_loss, reason = "it is small")]
    let most = MAX_HASH_BITS as f64;
    bits <= most
}

fn integer(own: Ref<'_>, name: &str) -> Option<i64> {
    own.get(name).and_then(Ref::as_i64)
}

/// Problems that upstream declares in the types: they come last and have no words.
fn declared(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let (kind, limited) = (spec.str("type"), present(spec, "limited"));
    if kind != "Exempt" && present(spec, "exempt").is_some() {
        errors.forbidden(&path.child("exempt"), "");
    }
    let at = path.child("limited");
    member_of_mode(errors, &at, kind == "Limited", limited.is_some());
    if kind.is_empty() {
        errors.required(&path.child("type"), "");
    }
    let Some(response) = limited.and_then(|limited| limited.get("limitResponse")) else {
        return;
    };
    let (at, kind) = (at.child("limitResponse"), response.str("type"));
    let has_queuing = present(response, "queuing").is_some();
    member_of_mode(errors, &at.child("queuing"), kind == "Queue", has_queuing);
    if kind.is_empty() {
        errors.required(&at.child("type"), "");
    }
}

/// A member that is there where its mode is the one, and nowhere else.
fn member_of_mode(errors: &mut Errors, path: &Path<'_>, is_mode: bool, is_present: bool) {
    match (is_mode, is_present) {
        (true, false) => errors.required(path, ""),
        (false, true) => errors.forbidden(path, ""),
        _ => {}
    }
}
