//! The Prometheus operator.

use super::operator::{Operator, Program, Step, expect};

pub(super) const OPERATOR: Operator = Operator {
    name: "prometheus-operator",
    definitions: &["example/prometheus-operator-crd"],
    program: Some(Program {
        arguments: &["--kubeconfig=@KUBECONFIG@", "--web.listen-address=127.0.0.1:0"],
        environment: &[],
        files: &[],
        folders: &[],
        services: &[],
        mounts: &[],
    }),
    steps: STEPS,
};

/// A Prometheus of two replicas with a monitor and rules, and an Alertmanager.
const STEPS: &[Step] = &[
    Step::Apply("objects.yaml"),
    expect(
        &["-n", "mon", "statefulset", "prometheus-p"],
        "{.spec.replicas}",
        "2",
    ),
    expect(
        &["-n", "mon", "statefulset", "alertmanager-am"],
        "{.spec.replicas}",
        "1",
    ),
    expect(
        &["-n", "mon", "secret", "prometheus-p"],
        "{.metadata.labels.managed-by}",
        "prometheus-operator",
    ),
    expect(
        &["-n", "mon", "configmap", "prometheus-p-rulefiles-0"],
        "{.metadata.labels.prometheus-name}",
        "p",
    ),
    expect(
        &["-n", "mon", "pod", "prometheus-p-0", "prometheus-p-1"],
        "{.items[*].spec.serviceAccountName}",
        "prometheus prometheus",
    ),
];
