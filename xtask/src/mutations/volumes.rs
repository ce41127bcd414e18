//! Lines of the attach/detach controller: no volume for one node on two, none taken from a node that uses it.

use super::{Mutation, Suite};

const PLANS: &[&str] = &["--lib", "attach_detach::"];
const SCENARIO: &[&str] = &["--test", "simulation", "attach_detach"];
const FOLDER: &str = "controllers/manager/src/attach_detach";

pub(super) const SUITES: &[Suite] = &[
    Suite {
        package: "controllers-manager",
        folder: FOLDER,
        mutations: &[
            Mutation {
                name: "attaching: a volume in use is detached",
                file: "plan.rs",
                from: "if used && !is_given_up {",
                to: "if false {",
                proof: PLANS,
            },
            Mutation {
                name: "attaching: a deletion is sent again until it is seen",
                file: "plan.rs",
                from: "if own.deleting || deleted {",
                to: "if own.deleting {",
                proof: PLANS,
            },
            Mutation {
                name: "attaching: the cache is believed about what was just made",
                file: "memory.rs",
                from: "own.made.is_none_or(|made| made > position)",
                to: "own.made.is_some_and(|made| made > position)",
                proof: PLANS,
            },
        ],
    },
    Suite {
        package: "cluster",
        folder: FOLDER,
        mutations: &[Mutation {
            name: "attaching: a volume for one node goes to a second",
            file: "reconcile.rs",
            from: "if !holders.is_empty() {",
            to: "if false {",
            proof: SCENARIO,
        }],
    },
];
