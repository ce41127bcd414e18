//! Stages of an object on its way into the store.

use apiserver_registry::managed_fields::{self, Subject, Writer};
use apiserver_registry::{ObjectPart, RequestContext, ResourceRow, metadata};
use jiff::Timestamp;
use machinery_fuzz::Stages;
use machinery_meta::UserInfo;
use machinery_runtime::Simulation;
use machinery_schema::{Strictness, Tree, apply_defaults, decode_json};

/// Parts that have rules of their own.
const PARTS: [ObjectPart; 4] = [
    ObjectPart::Main,
    ObjectPart::Status,
    ObjectPart::Other("ephemeralcontainers"),
    ObjectPart::Other("approval"),
];

fn decoded(row: &ResourceRow, text: &str) -> Option<Tree> {
    let decoded = decode_json(&row.schema, row.ty, text.as_bytes(), Strictness::Report);
    let mut tree = decoded.ok()?.tree;
    apply_defaults(&mut tree);
    row.strategy.defaults(&mut tree);
    Some(tree)
}

/// Creates one object, and makes another one of it. Says whether both are objects of the kind.
pub(crate) fn create_and_update(
    stages: &mut Stages,
    row: &ResourceRow,
    (old, new): (&str, &str),
    with_owners: bool,
) -> bool {
    let decoded = stages.of("decode", || (decoded(row, old), decoded(row, new)));
    let (Some(old), Some(new)) = decoded else {
        return false;
    };
    let runtime = Simulation::new(1).runtime();
    let ctx = RequestContext::internal(UserInfo::named("tester", [UserInfo::MASTERS]), runtime);
    let mut made = new.clone();
    stages.of("create", || {
        row.strategy.prepare_for_create(&ctx, &mut made);
        metadata::validation::validate_new(&made, row, &*row.strategy).len()
            + row.strategy.validate(made.root()).len()
    });
    stages.of("warnings", || {
        row.strategy.warnings(new.root(), None).len()
            + row.strategy.warnings(new.root(), Some(old.root())).len()
    });
    for part in PARTS {
        let mut changed = new.clone();
        stages.of("update", || {
            row.strategy.prepare_for_update(&ctx, part, &mut changed, &old);
            let problems = row
                .strategy
                .validate_update(&ctx, part, changed.root(), old.root());
            problems.len() + metadata::validation::validate_changed(&changed, &old, row).len()
        });
    }
    stages.of("table", || (row.columns.cells)(new.root(), Timestamp::UNIX_EPOCH));
    if with_owners {
        owners(stages, row, &old, &new);
    }
    true
}

/// Records the fields that a manager changed, and applies the new object over the old one.
fn owners(stages: &mut Stages, row: &ResourceRow, old: &Tree, new: &Tree) {
    let subject = Subject::part(row, ObjectPart::Main, &());
    let writer = |manager: &str| Writer {
        manager: manager.to_owned(),
        now: "2026-11-23T00:00:00Z".to_owned(),
    };
    let (nothing, mut live, mut changed) = (Tree::new(&row.schema, row.ty), old.clone(), new.clone());
    let tracked = stages.of("owners", || {
        managed_fields::track(subject, &writer("a"), &nothing, &mut live)?;
        managed_fields::track(subject, &writer("b"), &live, &mut changed)
    });
    // So many fields may be refused; this, too, must not take long.
    let _ = tracked;
    let mut configuration = new.clone();
    managed_fields::forget(&mut configuration);
    let applied = stages.of("apply", || {
        managed_fields::apply(subject, &writer("c"), Some(&live), &configuration, true)
    });
    let _ = applied;
}
