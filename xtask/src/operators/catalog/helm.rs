//! Helm.

use super::operator::{Operator, Step, expect};

pub(super) const OPERATOR: Operator = Operator {
    name: "helm",
    definitions: &[],
    program: None,
    steps: STEPS,
};

const SHOP: &[&str] = &["-n", "shop", "configmap", "shop"];
const PRICE: &[&str] = &["-n", "shop", "items.shop.example", "apple"];
const VARIABLES: &[&str] = &["-n", "shop", "deployment", "shop"];
const VARIABLES_PATH: &str = "{.spec.template.spec.containers[0].env[*].name}";

/// A chart with a definition and its object, hooks of every moment, a lookup that keeps a Secret, and lists that an upgrade
/// merges.
const STEPS: &[Step] = &[
    Step::Run(&[
        "install",
        "shop",
        "shop",
        "-n",
        "shop",
        "--create-namespace",
        "--wait",
    ]),
    expect(SHOP, "{.data.policies}", "true"),
    expect(PRICE, "{.spec.price}", "1"),
    expect(VARIABLES, VARIABLES_PATH, "A B"),
    Step::Run(&[
        "upgrade",
        "shop",
        "shop",
        "-n",
        "shop",
        "--set",
        "greeting=bye",
        "--wait",
    ]),
    expect(SHOP, "{.data.greeting}", "bye"),
    expect(PRICE, "{.spec.price}", "2"),
    expect(VARIABLES, VARIABLES_PATH, "B"),
    expect(
        &["-n", "shop", "poddisruptionbudget", "shop"],
        "{.spec.minAvailable}",
        "1",
    ),
    expect(
        &["-n", "shop", "configmap", "hook-post-upgrade"],
        "{.data.revision}",
        "2",
    ),
    Step::Run(&[
        "upgrade",
        "shop",
        "shop",
        "-n",
        "shop",
        "--set",
        "greeting=bye",
        "--dry-run=server",
    ]),
    Step::Run(&["rollback", "shop", "1", "-n", "shop", "--wait"]),
    expect(VARIABLES, VARIABLES_PATH, "A B"),
    Step::Gone(&["-n", "shop", "poddisruptionbudget", "shop"]),
    Step::Run(&["test", "shop", "-n", "shop"]),
    Step::Run(&[
        "uninstall",
        "shop",
        "-n",
        "shop",
        "--wait",
        "--cascade",
        "foreground",
    ]),
    Step::Gone(SHOP),
    Step::Gone(VARIABLES),
    expect(
        &["-n", "shop", "configmap", "hook-post-delete"],
        "{.data.revision}",
        "1",
    ),
];
