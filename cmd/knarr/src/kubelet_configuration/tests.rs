use super::document::table;
use super::fields::{FIELDS, Handling};
use super::*;
use clap::{Arg, Command, CommandFactory};
use std::path::Path;

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

fn agent() -> Command {
    let command = crate::Arguments::command();
    command.find_subcommand("agent").unwrap().clone()
}

/// The words of a document and its drop-ins, where these flags are given.
fn expanded(
    folder: &Path,
    document: &str,
    drop_ins: &[(&str, &str)],
    given: &[&str],
) -> Result<Vec<String>, String> {
    let file = folder.join("kubelet.yaml");
    std::fs::write(&file, document).unwrap();
    let drops = folder.join("kubelet.d");
    std::fs::create_dir_all(&drops).unwrap();
    for (name, text) in drop_ins {
        std::fs::write(drops.join(name), text).unwrap();
    }
    let command = crate::Arguments::command();
    let agent = agent();
    let global = command.get_arguments().filter(|flag| flag.is_global_set());
    let flags: Vec<&Arg> = agent.get_arguments().chain(global).collect();
    let is_given = |flag: &Arg| given.iter().any(|name| flag.get_long() == Some(*name));
    let drops = Some(drops.as_path()).filter(|_| !drop_ins.is_empty());
    let words = words(Some(&file), drops, &is_given, &flags).map_err(|error| error.to_string())?;
    Ok(words
        .into_iter()
        .map(|word| word.into_string().unwrap())
        .collect())
}

#[track_caller]
fn check(fields: &str, expected: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let words = expanded(folder.path(), &format!("{HEAD}{fields}"), &[], &[]).unwrap();
    let place = folder.path().display().to_string();
    let words: Vec<String> = words.iter().map(|word| word.replace(&place, "HERE")).collect();
    assert_eq!(words, expected, "{fields}");
}

#[track_caller]
fn refused(document: &str, expected: &str) {
    let folder = tempfile::tempdir().unwrap();
    let error = expanded(folder.path(), document, &[], &[]).unwrap_err();
    assert!(error.contains(expected), "{error}\nexpected {expected}");
}

#[track_caller]
fn invalid(fields: &str, expected: &str) {
    refused(&format!("{HEAD}{fields}"), expected);
}

#[test]
fn kubelet_configuration_becomes_flags() {
    check("", &[]);
    check("maxPods: 7\nport: 0\n", &["--max-pods=7"]);
    check(
        "clusterDNS: [10.96.0.10, 10.96.0.11]\nregisterNode: false\n",
        &[
            "--cluster-dns=10.96.0.10",
            "--cluster-dns=10.96.0.11",
            "--register-node=false",
        ],
    );
    check(
        "evictionHard: {memory.available: 200Mi, nodefs.available: 5%}\nevictionSoftGracePeriod: {memory.available: 1m30s}\n",
        &[
            "--eviction-hard=memory.available<200Mi,nodefs.available<5%",
            "--eviction-soft-grace-period=memory.available=1m30s",
        ],
    );
    check(
        "staticPodURL: https://pods.test/\nstaticPodURLHeader: {a: ['b, c', d]}\nhttpCheckFrequency: 60s\n",
        &[
            "--http-check-frequency=1m0s",
            "--manifest-url=https://pods.test/",
            r#"--manifest-url-header={"a":["b, c","d"]}"#,
        ],
    );
    check(
        "failSwapOn: false\nmemorySwap: {swapBehavior: LimitedSwap}\n",
        &["--fail-swap-on=false", "--memory-swap-behavior=LimitedSwap"],
    );
    check("evictionHard: {}\n", &["--eviction-hard="]);
    check(
        "kubeReserved: {cpu: 200m, memory: 1Gi}\n",
        &["--kube-reserved=cpu=200m,memory=1Gi"],
    );
    check(
        "enforceNodeAllocatable: []\n",
        &["--enforce-node-allocatable=none"],
    );
    check(
        "registerWithTaints: [{key: a, value: b, effect: NoSchedule}, {key: c, effect: NoExecute}]\n",
        &[
            "--register-with-taints=a=b:NoSchedule",
            "--register-with-taints=c=:NoExecute",
        ],
    );
    check(
        "shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\n",
        &[
            "--shutdown-grace-period=30s",
            "--shutdown-grace-period-critical-pods=10s",
        ],
    );
    check(
        "shutdownGracePeriodByPodPriority: [{priority: -5, shutdownGracePeriodSeconds: 30}, {priority: 100}]\n",
        &[
            "--shutdown-grace-period-by-pod-priority=-5=30",
            "--shutdown-grace-period-by-pod-priority=100=0",
        ],
    );
    check(
        "staticPodPath: manifests\nauthentication: {x509: {clientCAFile: /etc/ca.crt}}\n",
        &[
            "--pod-manifest-path=HERE/manifests",
            "--client-ca-file=/etc/ca.crt",
        ],
    );
    check(
        "cpuManagerPolicy: static\ncpuManagerPolicyOptions: {full-pcpus-only: 'true', strict-cpu-reservation: 'true'}\n\
         memoryManagerPolicy: Static\ntopologyManagerPolicy: best-effort\nreservedSystemCPUs: 0-1\n\
         reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}, {numaNode: 1, limits: {hugepages-2Mi: 4Mi, memory: 2Gi}}]\n",
        &[
            "--cpu-manager-policy=static",
            "--cpu-manager-policy-options=full-pcpus-only=true,strict-cpu-reservation=true",
            "--memory-manager-policy=Static",
            "--topology-manager-policy=best-effort",
            "--reserved-cpus=0-1",
            "--reserved-memory=0:memory=1Gi",
            "--reserved-memory=1:hugepages-2Mi=4Mi,memory=2Gi",
        ],
    );
    check(
        "imageMinimumGCAge: 90s\nlogging: {verbosity: 3}\n",
        &["--minimum-image-ttl-duration=1m30s", "--v=3"],
    );
}

#[test]
fn kubelet_configuration_of_kubeadm_is_taken() {
    let document = "authentication: {anonymous: {enabled: false}, webhook: {cacheTTL: 0s, enabled: true}}\n\
        authorization: {mode: Webhook, webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}}\n\
        clusterDNS: [10.96.0.10]\nclusterDomain: cluster.local\ncontainerRuntimeEndpoint: ''\n\
        cpuManagerReconcilePeriod: 0s\ncrashLoopBackOff: {}\nevictionPressureTransitionPeriod: 0s\n\
        fileCheckFrequency: 0s\nhealthzBindAddress: 127.0.0.1\nhealthzPort: 10248\nhttpCheckFrequency: 0s\n\
        imageMaximumGCAge: 0s\nimageMinimumGCAge: 0s\n\
        logging: {flushFrequency: 0, options: {json: {infoBufferSize: '0'}, text: {infoBufferSize: '0'}}, verbosity: 0}\n\
        memorySwap: {}\nnodeStatusReportFrequency: 0s\nnodeStatusUpdateFrequency: 0s\nrotateCertificates: true\n\
        runtimeRequestTimeout: 0s\nshutdownGracePeriod: 0s\nshutdownGracePeriodCriticalPods: 0s\n\
        streamingConnectionIdleTimeout: 0s\nsyncFrequency: 0s\nvolumeStatsAggPeriod: 0s\n";
    let words = [
        "--healthz-port=10248",
        "--cluster-domain=cluster.local",
        "--cluster-dns=10.96.0.10",
    ];
    check(document, &words);
    let systemd = [words[0], words[1], words[2], "--cgroup-driver=systemd"];
    check(&format!("{document}cgroupDriver: systemd\n"), &systemd);
}

#[test]
fn kubelet_configuration_gives_way_to_flags_and_to_drop_ins() {
    let folder = tempfile::tempdir().unwrap();
    let document = format!("{HEAD}maxPods: 7\npodPidsLimit: 100\nevictionHard: {{memory.available: 1Gi}}\n");
    let drop_ins = [
        (
            "20-second.conf",
            &*format!("{HEAD}podPidsLimit: 300\nevictionHard: {{nodefs.available: 5%}}\n"),
        ),
        (
            "10-first.conf",
            &*format!("{HEAD}podPidsLimit: 200\nmaxPods: null\nmaxParallelImagePulls: 3\n"),
        ),
        ("30-other.yaml", "not read"),
    ];
    let words = expanded(folder.path(), &document, &drop_ins, &["max-parallel-image-pulls"]);
    let hard = "--eviction-hard=memory.available<1Gi,nodefs.available<5%";
    assert_eq!(words.unwrap(), ["--pod-max-pids=300", hard]);
    let wrong = [("40-wrong.conf", "maxPods: 3\n")];
    let error = expanded(folder.path(), &document, &wrong, &[]).unwrap_err();
    assert!(
        error.contains("failed to load kubelet dropin file") && error.contains("Object 'Kind' is missing"),
        "{error}"
    );
}

#[test]
fn kubelet_configuration_adds_default_thresholds_where_it_is_to() {
    check(
        "mergeDefaultEvictionSettings: true\nevictionHard: {memory.available: 1Gi}\n",
        &[
            "--eviction-hard=imagefs.available<15%,imagefs.inodesFree<5%,memory.available<1Gi,nodefs.available<10%,nodefs.inodesFree<5%",
        ],
    );
    // To a file without thresholds drop-ins add theirs.
    let folder = tempfile::tempdir().unwrap();
    let drop_in = [(
        "a.conf",
        &*format!("{HEAD}evictionHard: {{memory.available: 1Gi}}\n"),
    )];
    let words = expanded(folder.path(), HEAD, &drop_in, &[]).unwrap();
    assert!(
        words[0].contains("nodefs.available<10%") && words[0].contains("memory.available<1Gi"),
        "{words:?}"
    );
}

#[test]
fn kubelet_configuration_is_decoded_strictly() {
    let (no_kind, other) = (
        "apiVersion: kubelet.config.k8s.io/v1beta1\n",
        HEAD.replace("v1beta1", "v1"),
    );
    refused(no_kind, "error: failed to decode: Object 'Kind' is missing");
    refused(
        &other,
        "no kind \"KubeletConfiguration\" is registered for version \"kubelet.config.k8s.io/v1\"",
    );
    refused("", "was empty");
    invalid(
        "maxPodz: 3\nauthentication: {webhook: {cacheTTl: 1s}}\n",
        "strict decoding error: unknown field \"authentication.webhook.cacheTTl\", unknown field \"maxPodz\"",
    );
    invalid(
        "maxPods: 3\nmaxPods: 4\n",
        "line 4: key \"maxPods\" already set in map",
    );
    for (fields, expected) in [
        (
            "maxPods: many\n",
            "cannot unmarshal string into Go struct field KubeletConfiguration.maxPods of type int32",
        ),
        (
            "maxPods: 1.5\n",
            "cannot unmarshal number 1.5 into Go struct field KubeletConfiguration.maxPods of type int32",
        ),
        (
            "maxPods: 3000000000\n",
            "cannot unmarshal number 3000000000 into Go struct field",
        ),
        (
            "clusterDNS: 10.96.0.10\n",
            "cannot unmarshal string into Go struct field KubeletConfiguration.clusterDNS of type []string",
        ),
        (
            "clusterDNS: [1]\n",
            "cannot unmarshal number 1 into Go struct field KubeletConfiguration.clusterDNS of type string",
        ),
        (
            "kubeReserved: {cpu: 1}\n",
            "KubeletConfiguration.kubeReserved of type string",
        ),
        (
            "authentication: {webhook: {enabled: 'yes'}}\n",
            "KubeletWebhookAuthentication.authentication.webhook.enabled of type bool",
        ),
        (
            "syncFrequency: 10\n",
            "json: cannot unmarshal number 10 into Go value of type string",
        ),
        ("syncFrequency: '10'\n", "time: missing unit in duration \"10\""),
        (
            "registerWithTaints: [{kee: a}]\n",
            "unknown field \"registerWithTaints[0].kee\"",
        ),
    ] {
        invalid(fields, expected);
    }
}

#[test]
fn kubelet_configuration_is_validated_in_upstreams_words() {
    for (fields, expected) in [
        (
            "maxPods: -1\n",
            "maxPods (--max-pods) -1 must not be a negative number",
        ),
        (
            "port: 70000\n",
            "port (--port) 70000 must be between 1 and 65535, inclusive",
        ),
        (
            "healthzPort: -1\n",
            "healthzPort (--healthz-port) -1 must be between 1 and 65535, inclusive",
        ),
        (
            "imageGCLowThresholdPercent: 90\n",
            "imageGCLowThresholdPercent (--image-gc-low-threshold) 90 must be less than imageGCHighThresholdPercent \
             (--image-gc-high-threshold) 85",
        ),
        (
            "imageMaximumGCAge: 1m\n",
            "imageMaximumGCAge 1m0s must be greater than imageMinimumGCAge 2m0s",
        ),
        (
            "imageMinimumGCAge: -1m\n",
            "imageMinimumGCAge -1m0s must not be negative",
        ),
        (
            "containerLogMaxFiles: 1\n",
            "containerLogMaxFiles must be greater than 1",
        ),
        (
            "maxParallelImagePulls: 0\n",
            "maxParallelImagePulls 0 must be a positive number",
        ),
        (
            "serializeImagePulls: true\nmaxParallelImagePulls: 2\n",
            "cannot be larger than 1 unless SerializeImagePulls",
        ),
        (
            "shutdownGracePeriod: 1s\nshutdownGracePeriodCriticalPods: 2s\n",
            "shutdownGracePeriodCriticalPods {2s} must be <= shutdownGracePeriod {1s}",
        ),
        (
            "shutdownGracePeriod: 1ms\n",
            "shutdownGracePeriod {1ms} must be either zero or otherwise >= 1 sec",
        ),
        (
            "shutdownGracePeriod: 1s\nshutdownGracePeriodCriticalPods: -1s\n",
            "shutdownGracePeriodCriticalPods {-1s} must be either zero or otherwise >= 1 sec",
        ),
        (
            "shutdownGracePeriod: 1s\nshutdownGracePeriodByPodPriority: [{priority: 1}]\n",
            "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time",
        ),
        (
            "shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: -1}]\n",
            "shutdownGracePeriodByPodPriority: shutdownGracePeriodSeconds must not be negative",
        ),
        (
            "registerWithTaints: [{key: a, effect: NoExecute, timeAdded: '2026-01-01T00:00:00Z'}]\n",
            "taint.TimeAdded is not nil",
        ),
    ] {
        invalid(fields, expected);
    }
    invalid(
        "maxPods: -1\nsyncFrequency: 10s\n",
        "error: [invalid configuration: maxPods (--max-pods) -1 must not be a negative number, invalid configuration: \
         syncFrequency: \"10s\" is not supported (this agent has 1m0s): it would need a period of the pod workers that can be \
         set]",
    );
}

#[test]
fn swap_behavior_is_one_of_upstreams() {
    invalid(
        "memorySwap: {swapBehavior: UnlimitedSwap}\n",
        r#"invalid configuration: memorySwap.swapBehavior "UnlimitedSwap" must be one of: "", "LimitedSwap" or "NoSwap""#,
    );
}

#[test]
fn every_field_takes_its_default_and_is_honoured_or_refused() {
    let agent = agent();
    let command = crate::Arguments::command();
    for (at, field) in FIELDS.iter().enumerate() {
        assert!(
            FIELDS.iter().skip(at + 1).all(|other| other.path != field.path),
            "{}",
            field.path
        );
        match field.handling {
            Handling::Flag(flag) => {
                let mut flags = agent.get_arguments().chain(command.get_arguments());
                let is_there = flags.any(|own| own.get_long() == Some(flag));
                assert!(is_there, "{}: the agent has no flag --{flag}", field.path);
            }
            Handling::With(other) => assert!(fields::field(other).is_some(), "{other}"),
            Handling::Kept { needs, .. } => assert!(!needs.is_empty(), "{}", field.path),
        }
    }
    // Upstream's own file with all defaults, but for the socket of a runtime that is not this agent's.
    let lines = FIELDS
        .iter()
        .filter(|field| !field.default.is_empty() && field.path != "containerRuntimeEndpoint");
    let mut document = serde_json::Map::new();
    for field in lines {
        super::document::put_default(&mut document, field);
    }
    document.insert("apiVersion".into(), API_VERSION.into());
    document.insert("kind".into(), KIND.into());
    let folder = tempfile::tempdir().unwrap();
    let text = serde_json::Value::Object(document).to_string();
    let words = expanded(folder.path(), &text, &[], &[]).unwrap();
    assert!(words.contains(&"--max-pods=110".to_owned()), "{words:?}");
}

#[test]
fn page_has_the_table_of_fields() {
    let page = include_str!("../../../../docs/kubelet-configuration.md");
    let table = table();
    assert!(
        page.contains(&table),
        "docs/kubelet-configuration.md has another table; this is it:\n{table}"
    );
}
