//! A network of another program, which installs itself as Cilium and flannel do: a pod of its DaemonSet, in the network of the
//! machine, writes plugins and a configuration by `hostPath`. Its plugins are Debian's, `bridge` under a name of its own.

use crate::support::cluster::Cluster;
use crate::support::image::TOOLS;
use crate::support::kubectl::Kubectl;
use crate::support::text;

/// Installs, and takes the configuration away as it ends.
const INSTALL: &str = r#"cp /usr-cni/bridge /opt-cni/other-bridge
cat > /net.d/tmp <<END
{"cniVersion": "1.0.0", "name": "other", "plugins": [{"type": "other-bridge", "bridge": "other0", "isGateway": true, "ipMasq": true,
 "ipam": {"type": "host-local", "subnet": "10.199.0.0/24", "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "STATE"}}]}
END
mv /net.d/tmp /net.d/10-flannel.conflist
trap 'rm /net.d/10-flannel.conflist; exit' TERM
while :; do sleep 0.1; done
"#;

fn daemon_set(cluster: &Cluster) -> String {
    let own = cluster.own_dir().display().to_string();
    let script = INSTALL.replace("STATE", &format!("{own}/other-state"));
    let script: String = script.lines().map(|line| format!("          {line}\n")).collect();
    format!(
        r#"apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: other}}
spec:
  selector: {{matchLabels: {{app: other}}}}
  template:
    metadata: {{labels: {{app: other}}}}
    spec:
      hostNetwork: true
      terminationGracePeriodSeconds: 5
      tolerations: [{{operator: Exists}}]
      containers:
      - name: install
        image: {TOOLS}
        imagePullPolicy: IfNotPresent
        command:
        - sh
        - -ec
        - |
{script}        volumeMounts:
        - {{name: net, mountPath: /net.d}}
        - {{name: opt, mountPath: /opt-cni}}
        - {{name: usr, mountPath: /usr-cni}}
      volumes:
      - {{name: net, hostPath: {{path: {own}/net.d, type: DirectoryOrCreate}}}}
      - {{name: opt, hostPath: {{path: {own}/cni-bin, type: DirectoryOrCreate}}}}
      - {{name: usr, hostPath: {{path: /usr/lib/cni}}}}
"#
    )
}

/// The address of a new pod.
fn address(story: &Kubectl, name: &str) -> String {
    let pod = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{terminationGracePeriodSeconds: 1, containers: [{{name: main, image: {TOOLS}, imagePullPolicy: IfNotPresent, command: [sleep, '10000']}}]}}}}"
    );
    story.feed(&["apply"], &pod);
    story.wait(&format!("pod/{name}"), "condition=Ready");
    let address = story.field(&format!("pod/{name}"), "{.status.podIP}");
    story.kubectl(&["delete", "pod", name]);
    address
}

fn has_our_rules(cluster: &Cluster) -> bool {
    let output = cluster.host.command("nft").args(["list", "tables"]).output();
    text(&output.expect("nft").stdout).contains("table ip knarr-network")
}

pub(crate) fn a_network_of_another_program_takes_over(cluster: &Cluster) {
    let story = cluster.namespace("other-network");
    assert!(address(&story, "before").starts_with("10.244."));
    assert!(has_our_rules(cluster));
    story.feed(&["apply"], &daemon_set(cluster));
    story.kubectl(&["rollout", "status", "daemonset/other"]);
    story.until("our rules to go", || !has_our_rules(cluster));
    story.until("the runtime to have the other configuration", || {
        address(&story, "during").starts_with("10.199.0.")
    });
    story.kubectl(&["delete", "daemonset", "other"]);
    story.until("our rules to come back", || has_our_rules(cluster));
    story.until("the runtime to have our configuration", || {
        address(&story, "after").starts_with("10.244.")
    });
    let _ = cluster
        .host
        .command("ip")
        .args(["link", "delete", "other0"])
        .output();
}
