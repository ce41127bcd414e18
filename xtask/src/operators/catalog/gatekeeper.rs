//! Gatekeeper with its webhooks and the authority that it makes for them.

use super::operator::{Mount, Operator, Program, Service, Step, expect};

pub(super) const OPERATOR: Operator = Operator {
    name: "gatekeeper",
    definitions: &["deploy/gatekeeper.yaml"],
    program: Some(Program {
        arguments: &[
            "--port=@PORT@",
            "--health-addr=127.0.0.1:0",
            "--prometheus-port=@PORT2@",
            "--cert-dir=@FOLDER@/certs",
            "--api-cache-dir=@FOLDER@/audit",
            "--audit-interval=5",
            "--exempt-namespace=gatekeeper-system",
            "--logtostderr",
        ],
        environment: &[
            ("POD_NAMESPACE", "gatekeeper-system"),
            ("POD_NAME", "outside"),
            ("NAMESPACE", "gatekeeper-system"),
            ("CONTAINER_NAME", "manager"),
        ],
        files: &[],
        folders: &["audit"],
        services: &[Service {
            namespace: "gatekeeper-system",
            name: "gatekeeper-webhook-service",
            port: "https-webhook-server",
        }],
        mounts: &[Mount {
            namespace: "gatekeeper-system",
            secret: "gatekeeper-webhook-server-cert",
            keys: &["ca.crt", "tls.key", "tls.crt"],
            folder: "certs",
        }],
    }),
    steps: STEPS,
};

/// A template in Rego, a constraint of it that refuses and audits, a mutation, and a policy.
const STEPS: &[Step] = &[
    Step::Apply("before.yaml"),
    Step::Apply("template.yaml"),
    expect(
        &["constrainttemplate", "k8srequiredlabels"],
        "{.status.created}",
        "true",
    ),
    Step::Apply("constraint.yaml"),
    Step::Refused {
        file: "unlabelled.yaml",
        text: "you must provide labels: {\"owner\"}",
    },
    Step::Apply("labelled.yaml"),
    expect(
        &["k8srequiredlabels", "owners"],
        "{.status.violations[?(@.name==\"before\")].message}",
        "you must provide labels: {\"owner\"}",
    ),
    Step::Apply("mutation.yaml"),
    Step::Kubectl(&["wait", "--for=create", "assignmetadata/team"]),
    Step::Apply("mutated.yaml"),
    expect(&["namespace", "mutated"], "{.metadata.labels.team}", "a"),
    // A template in CEL becomes a policy and its binding, which the server itself enforces.
    Step::Apply("policy.yaml"),
    Step::Apply("limit.yaml"),
    Step::Refused {
        file: "many.yaml",
        text: "binding 'gatekeeper-k8sreplicas-few' denied request: at most 2 replicas",
    },
];
