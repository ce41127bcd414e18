//! Table of programs of others, with the recipe of each.

/// The release that everything here is compared with.
pub(super) const KUBERNETES_VERSION: &str = "v1.37.1";

/// Recipe of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recipe {
    /// `go build` of a package, found through our module.
    Build(&'static str),
    /// `go test -c` of a package.
    Test(&'static str),
    /// `go install` of a package at its own module's versions: it does not fit beside Kubernetes' pins.
    Install {
        package: &'static str,
        version: &'static str,
    },
    /// `go build` in a copy of a published module.
    Copy(Copied),
}

/// Published module, in a copy of which a program is built: with its own pins, which do not fit beside Kubernetes'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Copied {
    pub module: &'static str,
    pub version: &'static str,
    /// Package of the program, as a path below the module.
    pub package: &'static str,
    /// Modules that the module replaces by folders of its own repository, which are no part of what is published.
    pub replaced: &'static [&'static str],
    /// Folder below the root of this repository whose Go files are the package; none where the module has it.
    pub added: Option<&'static str>,
}

/// One row of the table below.
#[derive(Debug)]
pub(super) struct Tool {
    pub name: &'static str,
    pub recipe: Recipe,
    /// Built when no name is given.
    pub default: bool,
}

const fn tool(name: &'static str, recipe: Recipe) -> Tool {
    Tool {
        name,
        recipe,
        default: true,
    }
}

const fn on_request(name: &'static str, recipe: Recipe) -> Tool {
    Tool {
        name,
        recipe,
        default: false,
    }
}

/// Program of a module as it is published.
const fn copied(
    name: &'static str,
    module: &'static str,
    version: &'static str,
    package: &'static str,
) -> Tool {
    on_request(
        name,
        Recipe::Copy(Copied {
            module,
            version,
            package,
            replaced: &[],
            added: None,
        }),
    )
}

/// Everything that can be built, in building order: what most checks need comes first.
pub(super) const TOOLS: &[Tool] = &[
    tool("etcd", Recipe::Build("./etcd")),
    tool(
        "kube-apiserver",
        Recipe::Build("k8s.io/kubernetes/cmd/kube-apiserver"),
    ),
    tool("kubectl", Recipe::Build("k8s.io/kubernetes/cmd/kubectl")),
    tool("facts", Recipe::Build("./facts")),
    tool(
        "kube-controller-manager",
        Recipe::Build("k8s.io/kubernetes/cmd/kube-controller-manager"),
    ),
    tool(
        "kube-scheduler",
        Recipe::Build("k8s.io/kubernetes/cmd/kube-scheduler"),
    ),
    tool(
        "kwok",
        Recipe::Install {
            package: "sigs.k8s.io/kwok/cmd/kwok",
            version: "v0.8.0",
        },
    ),
    tool("ginkgo", Recipe::Build("github.com/onsi/ginkgo/v2/ginkgo")),
    tool("e2e.test", Recipe::Test("k8s.io/kubernetes/test/e2e")),
    on_request("envtest", Recipe::Build("./envtest")),
    on_request("etcdutl", Recipe::Build("go.etcd.io/etcd/etcdutl/v3")),
    on_request("kubelet", Recipe::Build("k8s.io/kubernetes/cmd/kubelet")),
    on_request("kube-proxy", Recipe::Build("k8s.io/kubernetes/cmd/kube-proxy")),
    on_request("agnhost", Recipe::Build("k8s.io/kubernetes/test/images/agnhost")),
    on_request("sample-apiserver", Recipe::Build("k8s.io/sample-apiserver")),
    on_request(
        "nonewprivs",
        Recipe::Build("k8s.io/kubernetes/test/images/nonewprivs"),
    ),
    copied("helm", "helm.sh/helm/v3", "v3.22.0", "./cmd/helm"),
    on_request(
        "prometheus-operator",
        Recipe::Copy(Copied {
            module: "github.com/prometheus-operator/prometheus-operator",
            version: "v0.89.0",
            package: "./cmd/operator",
            replaced: &[
                "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring",
                "github.com/prometheus-operator/prometheus-operator/pkg/client",
            ],
            added: None,
        }),
    ),
    // Its programs are in modules of their own, which the module proxy does not have.
    on_request(
        "cert-manager",
        Recipe::Copy(Copied {
            module: "github.com/cert-manager/cert-manager",
            version: "v1.21.2",
            package: "./cmd/knarr",
            replaced: &[],
            added: Some("conformance/operators/cert-manager/program"),
        }),
    ),
    copied("kueue", "sigs.k8s.io/kueue", "v0.17.0", "./cmd/kueue"),
    copied(
        "gatekeeper",
        "github.com/open-policy-agent/gatekeeper/v3",
        "v3.23.1",
        ".",
    ),
];
