//! Fields of `KubeletConfiguration` of Kubernetes 1.37, with their defaults, and how each is honoured. A row carries everything:
//! decoding, flags, `/configz` and the table of `docs/kubelet-configuration.md` are read from here.

/// Form of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Bool,
    Int32,
    Int64,
    Float,
    Text,
    Duration,
    /// A duration, or a number of nanoseconds.
    DurationOrNumber,
    /// A text or a number.
    Quantity,
    Texts,
    Ints,
    TextMap,
    BoolMap,
    TextsMap,
    /// Objects with these fields.
    Objects(&'static [(&'static str, Form)]),
}

/// A field.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    /// Names from the document's root, joined by dots.
    pub(crate) path: &'static str,
    pub(crate) form: Form,
    /// Upstream's default as text; empty where it is no value.
    pub(crate) default: &'static str,
    /// Zero is a value of its own, a pointer upstream; elsewhere it means the default.
    pub(crate) has_zero: bool,
    pub(crate) handling: Handling,
}

/// Way in which a field is honoured.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Handling {
    /// By this flag of the agent.
    Flag(&'static str),
    /// With another field.
    #[cfg_attr(not(test), expect(dead_code, reason = "the page's table alone names it"))]
    With(&'static str),
    /// By values that say what the agent does anyway: its own (empty where it has no use for any), upstream's default, and others of
    /// that meaning.
    Kept {
        own: &'static str,
        others: &'static [&'static str],
        /// Part that another value would need.
        needs: &'static str,
    },
}

const fn flag(path: &'static str, form: Form, default: &'static str, flag: &'static str) -> Field {
    Field {
        path,
        form,
        default,
        has_zero: false,
        handling: Handling::Flag(flag),
    }
}

/// The agent does as upstream's default says.
const fn kept(path: &'static str, form: Form, default: &'static str, needs: &'static str) -> Field {
    differs(path, form, default, default, &[], needs)
}

/// The agent has no use for it: upstream's default is taken and has no effect.
const fn unused(path: &'static str, form: Form, default: &'static str, needs: &'static str) -> Field {
    differs(path, form, default, "", &[], needs)
}

/// The agent does otherwise.
const fn differs(
    path: &'static str,
    form: Form,
    default: &'static str,
    own: &'static str,
    others: &'static [&'static str],
    needs: &'static str,
) -> Field {
    Field {
        path,
        form,
        default,
        has_zero: false,
        handling: Handling::Kept { own, others, needs },
    }
}

impl Field {
    const fn zero(mut self) -> Self {
        self.has_zero = true;
        self
    }
}

use Form::{
    Bool, BoolMap, Duration, DurationOrNumber, Float, Int32, Int64, Ints, Objects, Quantity, Text, TextMap,
    Texts, TextsMap,
};

const TAINT: Form = Objects(&[
    ("key", Text),
    ("value", Text),
    ("effect", Text),
    ("timeAdded", Text),
]);
const MEMORY_RESERVATION: Form = Objects(&[("numaNode", Int32), ("limits", TextMap)]);
const SHUTDOWN_BY_PRIORITY: Form = Objects(&[("priority", Int32), ("shutdownGracePeriodSeconds", Int64)]);

const PERIODS: &str = "a period of the pod workers that can be set";
const NODE_STATUS: &str = "periods of the node's status that can be set";
const REVIEWS: &str = "times of the caches of reviews that can be set";
const PULL_RATE: &str = "a rate of pulls";
const EVENT_RATE: &str = "a rate of events that can be set";
const API_RATE: &str = "a rate of requests that can be set";
const IPTABLES: &str = "rules of iptables; services have rules of nftables";
const HANDLERS: &str = "handlers of port 10250 that can be switched";
const LOG_FORMS: &str = "other forms of the agent's log";

/// All of them, in upstream's order.
pub(crate) const FIELDS: &[Field] = &[
    kept("enableServer", Bool, "true", "an agent without port 10250").zero(),
    flag("staticPodPath", Text, "", "pod-manifest-path"),
    differs(
        "podLogsDir",
        Text,
        "/var/log/pods",
        "/var/log/pods",
        &[],
        "a folder of logs outside of --data-dir",
    ),
    kept("syncFrequency", Duration, "1m0s", PERIODS),
    differs(
        "fileCheckFrequency",
        Duration,
        "20s",
        "2s",
        &[],
        "a period of static pods that can be set",
    ),
    flag("httpCheckFrequency", Duration, "20s", "http-check-frequency"),
    flag("staticPodURL", Text, "", "manifest-url"),
    flag("staticPodURLHeader", TextsMap, "", "manifest-url-header"),
    differs(
        "address",
        Text,
        "0.0.0.0",
        "0.0.0.0",
        &["::"],
        "a listener on one address",
    ),
    flag("port", Int32, "10250", "port"),
    kept("readOnlyPort", Int32, "0", "a port without authentication"),
    flag("tlsCertFile", Text, "", "tls-cert-file"),
    flag("tlsPrivateKeyFile", Text, "", "tls-private-key-file"),
    kept("tlsCipherSuites", Texts, "", "cipher suites that can be chosen"),
    kept("tlsCurvePreferences", Ints, "", "curves that can be chosen"),
    differs(
        "tlsMinVersion",
        Text,
        "",
        "VersionTLS12",
        &[],
        "versions of TLS that can be chosen",
    ),
    differs(
        "rotateCertificates",
        Bool,
        "false",
        "false",
        &["true"],
        "a client certificate that is not renewed",
    ),
    differs(
        "serverTLSBootstrap",
        Bool,
        "false",
        "false",
        &["true"],
        "a serving certificate that is not requested",
    ),
    flag("authentication.x509.clientCAFile", Text, "", "client-ca-file"),
    kept(
        "authentication.webhook.enabled",
        Bool,
        "true",
        "an agent that knows no tokens",
    )
    .zero(),
    kept("authentication.webhook.cacheTTL", Duration, "2m0s", REVIEWS),
    kept(
        "authentication.anonymous.enabled",
        Bool,
        "false",
        "anonymous access to port 10250",
    )
    .zero(),
    kept(
        "authorization.mode",
        Text,
        "Webhook",
        "access to port 10250 without authorization",
    ),
    kept(
        "authorization.webhook.cacheAuthorizedTTL",
        Duration,
        "5m0s",
        REVIEWS,
    ),
    kept(
        "authorization.webhook.cacheUnauthorizedTTL",
        Duration,
        "30s",
        REVIEWS,
    ),
    differs("registryPullQPS", Int32, "5", "0", &[], PULL_RATE).zero(),
    unused("registryBurst", Int32, "10", PULL_RATE),
    kept(
        "imagePullCredentialsVerificationPolicy",
        Text,
        "NeverVerifyPreloadedImages",
        "other policies about images that are there",
    ),
    kept(
        "preloadedImagesVerificationAllowlist",
        Texts,
        "",
        "other policies about images that are there",
    ),
    unused("eventRecordQPS", Int32, "50", EVENT_RATE).zero(),
    unused("eventBurst", Int32, "100", EVENT_RATE),
    kept("enableDebuggingHandlers", Bool, "true", HANDLERS).zero(),
    kept("enableContentionProfiling", Bool, "false", "a profiler"),
    flag("healthzPort", Int32, "10248", "healthz-port").zero(),
    kept(
        "healthzBindAddress",
        Text,
        "127.0.0.1",
        "a health port on another address",
    ),
    kept(
        "oomScoreAdj",
        Int32,
        "-999",
        "a score of the agent that can be set",
    )
    .zero(),
    flag("clusterDomain", Text, "", "cluster-domain"),
    flag("clusterDNS", Texts, "", "cluster-dns"),
    kept(
        "streamingConnectionIdleTimeout",
        Duration,
        "4h0m0s",
        "a time of idle streams that can be set",
    ),
    kept("nodeStatusUpdateFrequency", Duration, "10s", NODE_STATUS),
    kept("nodeStatusReportFrequency", Duration, "5m0s", NODE_STATUS),
    kept(
        "nodeLeaseDurationSeconds",
        Int32,
        "40",
        "a time of the node's lease that can be set",
    ),
    flag(
        "imageMinimumGCAge",
        Duration,
        "2m0s",
        "minimum-image-ttl-duration",
    ),
    flag("imageMaximumGCAge", Duration, "0s", "image-maximum-gc-age"),
    flag(
        "imageGCHighThresholdPercent",
        Int32,
        "85",
        "image-gc-high-threshold",
    )
    .zero(),
    flag(
        "imageGCLowThresholdPercent",
        Int32,
        "80",
        "image-gc-low-threshold",
    )
    .zero(),
    kept(
        "volumeStatsAggPeriod",
        Duration,
        "1m0s",
        "a period of the usage of volumes that can be set",
    ),
    kept("kubeletCgroups", Text, "", "a cgroup of the agent's own"),
    kept(
        "systemCgroups",
        Text,
        "",
        "a cgroup for the machine's other processes",
    ),
    flag("cgroupRoot", Text, "", "cgroup-root"),
    kept("cgroupsPerQOS", Bool, "true", "pods without cgroups of their own").zero(),
    flag("cgroupDriver", Text, "cgroupfs", "cgroup-driver"),
    flag("cpuManagerPolicy", Text, "none", "cpu-manager-policy"),
    kept(
        "singleProcessOOMKill",
        Bool,
        "",
        "a choice of what the OOM killer ends",
    )
    .zero(),
    flag(
        "cpuManagerPolicyOptions",
        TextMap,
        "",
        "cpu-manager-policy-options",
    ),
    flag(
        "cpuManagerReconcilePeriod",
        Duration,
        "10s",
        "cpu-manager-reconcile-period",
    ),
    flag("memoryManagerPolicy", Text, "None", "memory-manager-policy"),
    flag("topologyManagerPolicy", Text, "none", "topology-manager-policy"),
    flag(
        "topologyManagerScope",
        Text,
        "container",
        "topology-manager-scope",
    ),
    flag(
        "topologyManagerPolicyOptions",
        TextMap,
        "",
        "topology-manager-policy-options",
    ),
    kept(
        "qosReserved",
        TextMap,
        "",
        "memory that is kept for a class of pods",
    ),
    kept(
        "runtimeRequestTimeout",
        Duration,
        "2m0s",
        "a deadline of calls of the runtime that can be set",
    ),
    // Upstream's kubelet has no use for it since runtimes bring the network.
    differs(
        "hairpinMode",
        Text,
        "promiscuous-bridge",
        "",
        &["hairpin-veth", "none"],
        "a value that upstream knows",
    ),
    flag("maxPods", Int32, "110", "max-pods"),
    kept("podCIDR", Text, "", "an agent without an API server"),
    flag("podPidsLimit", Int64, "-1", "pod-max-pids").zero(),
    flag("resolvConf", Text, "/etc/resolv.conf", "resolv-conf"),
    kept("runOnce", Bool, "false", "an agent that ends"),
    kept("cpuCFSQuota", Bool, "true", "containers without limits of CPU").zero(),
    kept(
        "cpuCFSQuotaPeriod",
        Duration,
        "100ms",
        "a period of limits of CPU that can be set",
    )
    .zero(),
    kept(
        "nodeStatusMaxImages",
        Int32,
        "50",
        "a number of reported images that can be set",
    )
    .zero(),
    differs(
        "maxOpenFiles",
        Int64,
        "1000000",
        "",
        &[],
        "a bound of open files that can be set",
    ),
    differs(
        "contentType",
        Text,
        "application/vnd.kubernetes.protobuf",
        "application/json",
        &[],
        "requests of another content type",
    ),
    unused("kubeAPIQPS", Int32, "50", API_RATE).zero(),
    unused("kubeAPIBurst", Int32, "100", API_RATE),
    flag("serializeImagePulls", Bool, "true", "serialize-image-pulls").zero(),
    flag("maxParallelImagePulls", Int32, "", "max-parallel-image-pulls").zero(),
    flag("evictionHard", TextMap, "", "eviction-hard").zero(),
    flag("evictionSoft", TextMap, "", "eviction-soft"),
    flag(
        "evictionSoftGracePeriod",
        TextMap,
        "",
        "eviction-soft-grace-period",
    ),
    flag(
        "evictionPressureTransitionPeriod",
        Duration,
        "5m0s",
        "eviction-pressure-transition-period",
    ),
    flag(
        "evictionMaxPodGracePeriod",
        Int32,
        "0",
        "eviction-max-pod-grace-period",
    ),
    flag("evictionMinimumReclaim", TextMap, "", "eviction-minimum-reclaim"),
    Field {
        path: "mergeDefaultEvictionSettings",
        form: Bool,
        default: "false",
        has_zero: true,
        handling: Handling::With("evictionHard"),
    },
    flag("podsPerCore", Int32, "0", "pods-per-core"),
    kept(
        "enableControllerAttachDetach",
        Bool,
        "true",
        "an agent that attaches volumes",
    )
    .zero(),
    kept(
        "protectKernelDefaults",
        Bool,
        "false",
        "a check of the kernel's settings",
    ),
    differs("makeIPTablesUtilChains", Bool, "true", "false", &[], IPTABLES).zero(),
    unused("iptablesMasqueradeBit", Int32, "14", IPTABLES).zero(),
    unused("iptablesDropBit", Int32, "15", IPTABLES).zero(),
    flag("featureGates", BoolMap, "", "feature-gates"),
    flag("failSwapOn", Bool, "true", "fail-swap-on").zero(),
    flag("memorySwap.swapBehavior", Text, "", "memory-swap-behavior"),
    flag("containerLogMaxSize", Text, "10Mi", "container-log-max-size"),
    flag("containerLogMaxFiles", Int32, "5", "container-log-max-files").zero(),
    kept(
        "containerLogMaxWorkers",
        Int32,
        "1",
        "several workers that rotate logs",
    )
    .zero(),
    kept(
        "containerLogMonitorInterval",
        Duration,
        "10s",
        "a period of the rotation of logs that can be set",
    )
    .zero(),
    kept(
        "configMapAndSecretChangeDetectionStrategy",
        Text,
        "Watch",
        "another way to follow ConfigMaps and Secrets",
    ),
    flag("systemReserved", TextMap, "", "system-reserved"),
    flag("kubeReserved", TextMap, "", "kube-reserved"),
    flag("reservedSystemCPUs", Text, "", "reserved-cpus"),
    kept("showHiddenMetricsForVersion", Text, "", "hidden metrics"),
    flag("systemReservedCgroup", Text, "", "system-reserved-cgroup"),
    flag("kubeReservedCgroup", Text, "", "kube-reserved-cgroup"),
    flag(
        "enforceNodeAllocatable",
        Texts,
        "pods",
        "enforce-node-allocatable",
    )
    .zero(),
    kept(
        "allowedUnsafeSysctls",
        Texts,
        "",
        "sysctls that a pod may set beyond the safe ones",
    ),
    kept("defaultPodSysctls", TextMap, "", "sysctls that each pod gets"),
    unused(
        "volumePluginDir",
        Text,
        "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/",
        "FlexVolume",
    ),
    kept("providerID", Text, "", "a cloud provider"),
    kept(
        "kernelMemcgNotification",
        Bool,
        "false",
        "notifications of the kernel about memory",
    ),
    kept("logging.format", Text, "text", LOG_FORMS),
    unused("logging.flushFrequency", DurationOrNumber, "5s", LOG_FORMS),
    flag("logging.verbosity", Int32, "0", "v"),
    kept(
        "logging.vmodule",
        Objects(&[("filePattern", Text), ("verbosity", Int32)]),
        "",
        LOG_FORMS,
    ),
    kept("logging.options.text.splitStream", Bool, "false", LOG_FORMS),
    unused("logging.options.text.infoBufferSize", Quantity, "0", LOG_FORMS),
    kept("logging.options.json.splitStream", Bool, "false", LOG_FORMS),
    unused("logging.options.json.infoBufferSize", Quantity, "0", LOG_FORMS),
    flag(
        "enableSystemLogHandler",
        Bool,
        "true",
        "enable-system-log-handler",
    )
    .zero(),
    flag("enableSystemLogQuery", Bool, "false", "enable-system-log-query").zero(),
    flag("shutdownGracePeriod", Duration, "0s", "shutdown-grace-period"),
    flag(
        "shutdownGracePeriodCriticalPods",
        Duration,
        "0s",
        "shutdown-grace-period-critical-pods",
    ),
    flag(
        "shutdownGracePeriodByPodPriority",
        SHUTDOWN_BY_PRIORITY,
        "",
        "shutdown-grace-period-by-pod-priority",
    ),
    kept(
        "crashLoopBackOff.maxContainerRestartPeriod",
        Duration,
        "5m0s",
        "a longest pause before restarts that can be set",
    )
    .zero(),
    flag("reservedMemory", MEMORY_RESERVATION, "", "reserved-memory"),
    differs("enableProfilingHandler", Bool, "true", "false", &[], HANDLERS).zero(),
    differs("enableDebugFlagsHandler", Bool, "true", "false", &[], HANDLERS).zero(),
    kept(
        "seccompDefault",
        Bool,
        "false",
        "the runtime's profile for pods that name none",
    )
    .zero(),
    kept(
        "memoryThrottlingFactor",
        Float,
        "",
        "requests of memory that the kernel keeps (MemoryQoS)",
    )
    .zero(),
    kept(
        "memoryReservationPolicy",
        Text,
        "None",
        "requests of memory that the kernel keeps (MemoryQoS)",
    ),
    flag("registerWithTaints", TAINT, "", "register-with-taints"),
    flag("registerNode", Bool, "true", "register-node").zero(),
    kept("tracing.endpoint", Text, "", "traces").zero(),
    kept("tracing.samplingRatePerMillion", Int32, "", "traces").zero(),
    kept(
        "localStorageCapacityIsolation",
        Bool,
        "true",
        "an agent that does not measure disks of pods",
    )
    .zero(),
    flag(
        "containerRuntimeEndpoint",
        Text,
        "unix:///run/containerd/containerd.sock",
        "container-runtime-endpoint",
    ),
    kept(
        "imageServiceEndpoint",
        Text,
        "",
        "a service of images beside the runtime",
    ),
    flag("failCgroupV1", Bool, "true", "fail-cgroupv1").zero(),
    kept("userNamespaces.idsPerPod", Int64, "65536", "user namespaces").zero(),
];

/// The field of a path.
pub(crate) fn field(path: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.path == path)
}

/// Reports whether fields lie below a path.
pub(crate) fn is_group(path: &str) -> bool {
    FIELDS.iter().any(|field| {
        let rest = field.path.strip_prefix(path);
        rest.is_some_and(|rest| rest.starts_with('.'))
    })
}
