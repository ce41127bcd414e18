//! PersistentVolume: storage that a claim may be bound to.

pub(super) mod columns;
mod defaults;
mod sources;
pub mod validation;
mod warnings;

use crate::engine::context::RequestContext;
use crate::engine::kind::Kind;
use crate::engine::metadata;
use crate::engine::strategy::ObjectPart;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;
use crate::shared::not_enforced::{Field, field};
use machinery_schema::{Ref, Tree};

const PHASE: [&str; 2] = ["status", "phase"];
/// The time since which a volume has its phase.
const SINCE: [&str; 2] = ["status", "lastPhaseTransitionTime"];

pub(crate) static KIND: Kind = Kind::of("", "persistentvolumes")
    .traits(Traits::PLAIN.returned())
    .rules(ValidationRules::create(validation::validate).update(validation::validate_update))
    .prepare_for_create(begin)
    .prepare_for_update(note_phase)
    .fields_not_enforced(not_enforced)
    .default_lines(&[defaults::LINES])
    .warnings(|volume, _| warnings::of(volume))
    .columns(columns::cells);

/// A volume begins pending.
fn begin(ctx: &RequestContext, object: &mut Tree) {
    object.set_str(&PHASE, "Pending");
    set_since(ctx, object);
}

/// A new phase has a new time, unless the writer gives one; without a new one the time stays where the writer gives none.
fn note_phase(ctx: &RequestContext, part: ObjectPart, object: &mut Tree, old: &Tree) {
    if part != ObjectPart::Status {
        return;
    }
    let (given, before) = (object.str_at(&SINCE), old.str_at(&SINCE));
    let is_new = object.str_at(&PHASE) != old.str_at(&PHASE);
    if is_new && (given.is_empty() || given == before) {
        set_since(ctx, object);
    } else if given.is_empty() && !before.is_empty() {
        object.set_str(&SINCE, before);
    }
}

fn set_since(ctx: &RequestContext, object: &mut Tree) {
    let now = metadata::format_time(ctx.runtime.now());
    object.set_str(&SINCE, &now);
}

/// Sources that nodes mount.
const MOUNTED: [&str; 3] = ["csi", "hostPath", "local"];
/// Fields of the spec that are no sources.
const COMMON: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

/// The source of a volume that no node mounts.
fn not_enforced(object: Ref<'_>) -> Vec<Field> {
    let spec = object.get("spec").into_iter();
    let fields = spec.flat_map(|spec| spec.entries());
    let sources = fields.filter(|(name, _)| !MOUNTED.contains(name) && !COMMON.contains(name));
    let missing = "nodes do not provide volumes of this type";
    sources
        .filter_map(|(name, value)| field(format!("spec.{name}"), Some(value), missing))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_meta::UserInfo;
    use machinery_runtime::Runtime;

    #[track_caller]
    fn check(part: ObjectPart, (phase, since): (&str, &str), expected: Option<&str>) {
        let volume = |phase: &str, since: &str| {
            let since = match since {
                "" => String::new(),
                since => format!(r#","lastPhaseTransitionTime":"{since}""#),
            };
            Tree::from_json(&format!(r#"{{"status":{{"phase":"{phase}"{since}}}}}"#)).unwrap()
        };
        let ctx = RequestContext::internal(UserInfo::named("c", [UserInfo::AUTHENTICATED]), Runtime::real());
        let (old, mut new) = (volume("Bound", "2026-01-01T00:00:00Z"), volume(phase, since));
        let before = ctx.runtime.now();
        note_phase(&ctx, part, &mut new, &old);
        let found = new.str_at(&SINCE);
        match expected {
            Some(expected) => assert_eq!(found, expected),
            None => assert!(found >= metadata::format_time(before).as_str(), "{found}"),
        }
    }

    /// Cases of upstream's `persistentvolume/strategy_test.go`.
    #[tokio::test]
    async fn volume_notes_the_time_of_its_phase() {
        let (old, other) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:07Z");
        check(ObjectPart::Status, ("Bound", ""), Some(old));
        check(ObjectPart::Status, ("Bound", other), Some(other));
        check(ObjectPart::Status, ("Released", old), None);
        check(ObjectPart::Status, ("Released", ""), None);
        check(ObjectPart::Status, ("Released", other), Some(other));
        check(ObjectPart::Main, ("Released", old), Some(old));
    }
}
