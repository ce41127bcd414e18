//! Labels that a kubelet sets on its Node.

/// Labels below `kubernetes.io` that a kubelet sets, and that NodeRestriction lets it set (upstream's `IsKubeletLabel`).
pub const KUBELET_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// The build of a Windows node, which its kubelet sets as well.
pub const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";
