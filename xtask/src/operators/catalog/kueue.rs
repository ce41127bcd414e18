//! Kueue with its webhooks and the authority that it makes for them.

use super::operator::{Mount, Operator, Program, Service, Step, expect};

pub(super) const OPERATOR: Operator = Operator {
    name: "kueue",
    definitions: &["config/default"],
    program: Some(Program {
        arguments: &["--config=@FOLDER@/config.yaml"],
        environment: &[],
        files: &["config.yaml"],
        folders: &[],
        services: &[Service {
            namespace: "kueue-system",
            name: "kueue-webhook-service",
            port: "",
        }],
        mounts: &[Mount {
            namespace: "kueue-system",
            secret: "kueue-webhook-server-cert",
            keys: &["ca.crt", "tls.key", "tls.crt"],
            folder: "certs",
        }],
    }),
    steps: STEPS,
};

const FIRST: &[&str] = &["-n", "team", "job", "first"];
const SECOND: &[&str] = &["-n", "team", "job", "second"];

/// Two Jobs of a queue that has room for one of them.
const STEPS: &[Step] = &[
    Step::Apply("queues.yaml"),
    expect(
        &["clusterqueue", "all"],
        "{.status.conditions[?(@.type==\"Active\")].status}",
        "True",
    ),
    Step::Refused {
        file: "invalid.yaml",
        text: "denied the request",
    },
    Step::Apply("first.yaml"),
    expect(FIRST, "{.spec.suspend}", "false"),
    expect(
        &["-n", "team", "workloads"],
        "{.items[*].status.conditions[?(@.type==\"Admitted\")].status}",
        "True",
    ),
    expect(
        &["-n", "team", "pods", "-l", "job-name=first"],
        "{.items[*].spec.containers[0].name}",
        "work",
    ),
    Step::Apply("second.yaml"),
    expect(
        &["-n", "team", "localqueue", "jobs"],
        "{.status.pendingWorkloads}",
        "1",
    ),
    expect(SECOND, "{.spec.suspend}", "true"),
    Step::Kubectl(&["-n", "team", "delete", "job", "first"]),
    expect(SECOND, "{.spec.suspend}", "false"),
    expect(
        &["-n", "team", "localqueue", "jobs"],
        "{.status.admittedWorkloads}",
        "1",
    ),
];
