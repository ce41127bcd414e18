//! Operators and the steps of their scenarios.

/// A program with its scenario.
#[derive(Debug)]
pub(crate) struct Operator {
    /// Name, also of the folder of its objects.
    pub name: &'static str,
    /// Go module.
    pub module: &'static str,
    pub version: &'static str,
    /// Package of the program in the module.
    pub package: &'static str,
    /// Modules that the module replaces by folders of its own repository.
    pub replaced: &'static [&'static str],
    /// Files and folders of the module that are applied first.
    pub definitions: &'static [&'static str],
    /// Arguments of a program that runs beside the server, `KUBECONFIG` for the path of the kubeconfig; none for a command.
    pub runs_with: Option<&'static [&'static str]>,
    pub steps: &'static [Step],
}

/// A step of a scenario.
#[derive(Debug)]
pub(crate) enum Step {
    /// Applies a file of the scenario.
    Apply(&'static str),
    /// Runs the operator's own program to its end.
    Run(&'static [&'static str]),
    /// Waits until `kubectl get` answers with this text at a path.
    Expect {
        get: &'static [&'static str],
        path: &'static str,
        text: &'static str,
    },
    /// Waits until an object is not there.
    Gone(&'static [&'static str]),
}

const fn expect(get: &'static [&'static str], path: &'static str, text: &'static str) -> Step {
    Step::Expect { get, path, text }
}

/// All scenarios.
pub(crate) const CATALOG: &[Operator] = &[
    Operator {
        name: "helm",
        module: "helm.sh/helm/v3",
        version: "v3.22.0",
        package: "./cmd/helm",
        replaced: &[],
        definitions: &[],
        runs_with: None,
        steps: HELM,
    },
    Operator {
        name: "prometheus-operator",
        module: "github.com/prometheus-operator/prometheus-operator",
        version: "v0.89.0",
        package: "./cmd/operator",
        replaced: &[
            "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring",
            "github.com/prometheus-operator/prometheus-operator/pkg/client",
        ],
        definitions: &["example/prometheus-operator-crd"],
        runs_with: Some(&["--kubeconfig=KUBECONFIG", "--web.listen-address=127.0.0.1:0"]),
        steps: PROMETHEUS,
    },
];

const SHOP: &[&str] = &["-n", "shop", "configmap", "shop"];
const PRICE: &[&str] = &["-n", "shop", "items.shop.example", "apple"];
const VARIABLES: &[&str] = &["-n", "shop", "deployment", "shop"];
const VARIABLES_PATH: &str = "{.spec.template.spec.containers[0].env[*].name}";

/// A chart with a definition and its object, hooks of every moment, a lookup that keeps a Secret, and lists that an upgrade
/// merges.
const HELM: &[Step] = &[
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

/// A Prometheus of two replicas with a monitor and rules, and an Alertmanager.
const PROMETHEUS: &[Step] = &[
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
];
