//! cert-manager with its webhook and its injector of authorities, but without the Venafi issuer.

use super::operator::{Operator, Program, Service, Step, expect};

pub(super) const OPERATOR: Operator = Operator {
    name: "cert-manager",
    definitions: &["deploy/crds"],
    program: Some(Program {
        arguments: &["--kubeconfig=@KUBECONFIG@", "--webhook-port=@PORT@"],
        environment: &[],
        files: &[],
        folders: &[],
        services: &[Service {
            namespace: "cert-manager",
            name: "cert-manager-webhook",
            port: "https",
        }],
        mounts: &[],
    }),
    steps: STEPS,
};

/// A self-signed authority, an issuer by it and its certificate, a webhook that refuses, and an injected authority.
const STEPS: &[Step] = &[
    expect(
        &["validatingwebhookconfiguration", "cert-manager-webhook"],
        "{.webhooks[0].failurePolicy}",
        "Fail",
    ),
    Step::Refused {
        file: "invalid.yaml",
        text: "spec.duration: Invalid value",
    },
    Step::Apply("objects.yaml"),
    expect(
        &["-n", "shop", "issuer", "authority"],
        "{.status.conditions[?(@.type==\"Ready\")].status}",
        "True",
    ),
    expect(
        &["-n", "shop", "certificate", "shop"],
        "{.status.conditions[?(@.type==\"Ready\")].status}",
        "True",
    ),
    Step::Certificate {
        namespace: "shop",
        secret: "shop-tls",
        host: "shop.example",
    },
    expect(
        &["-n", "shop", "certificate", "web-tls"],
        "{.status.conditions[?(@.type==\"Ready\")].status}",
        "True",
    ),
    expect(
        &["-n", "shop", "certificaterequests"],
        "{.items[*].status.conditions[?(@.type==\"Approved\")].status}",
        "True True True",
    ),
    // A deleted Secret is issued again.
    Step::Kubectl(&["-n", "shop", "delete", "secret", "shop-tls"]),
    Step::Certificate {
        namespace: "shop",
        secret: "shop-tls",
        host: "shop.example",
    },
];
