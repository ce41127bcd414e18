//! Images that come from a registry.

use crate::support::cluster::Cluster;
use crate::support::kubectl::Kubectl;
use crate::support::registry::Registry;
use std::process::Command;

const REASON: &str = "{.status.containerStatuses[0].state.waiting.reason}";
/// `puller:open sesame`, as the header says it.
const AUTHORIZATION: &str = "Basic cHVsbGVyOm9wZW4gc2VzYW1l";

/// One that serves the image that `knarr image build hello` makes.
fn registry(cluster: &Cluster) -> Registry {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = folder.path().join("hello.tar");
    let mut build = Command::new(env!("CARGO_BIN_EXE_knarr"));
    build.args(["image", "build", "hello"]).arg(&archive);
    let output = build.output().expect("the built binary starts");
    assert!(
        output.status.success(),
        "{}",
        crate::support::text(&output.stderr)
    );
    Registry::start(&cluster.host, &archive, AUTHORIZATION)
}

fn run(story: &Kubectl, name: &str, image: &str, policy: &str, more: &str) -> String {
    let container = format!("{{name: main, image: '{image}', imagePullPolicy: {policy}}}");
    let spec = format!("{{terminationGracePeriodSeconds: 1, {more} containers: [{container}]}}");
    story.feed(
        &["apply"],
        &format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {spec}}}"),
    );
    format!("pod/{name}")
}

fn told(story: &Kubectl, pod: &str, words: &str) {
    story.until(&format!("{pod}'s events to say {words}"), || {
        story.kubectl(&["events", "--for", pod]).contains(words)
    });
}

pub(crate) fn an_image_is_pulled_as_its_policy_says(cluster: &Cluster) {
    let story = cluster.namespace("pulls");
    let registry = registry(cluster);
    let image = registry.publish("hello");
    let never = run(&story, "never", &image, "Never", "");
    story.wait_value(&never, REASON, "ErrImageNeverPull");
    assert_eq!(registry.asked("hello"), 0);
    let first = run(&story, "first", &image, "IfNotPresent", "");
    story.wait(&first, "condition=Ready");
    told(&story, &first, "Successfully pulled image");
    let asked = registry.asked("hello");
    assert!(asked > 0);
    let second = run(&story, "second", &image, "IfNotPresent", "");
    story.wait(&second, "condition=Ready");
    told(&story, &second, "already present on machine");
    assert_eq!(registry.asked("hello"), asked, "it was there");
    let always = run(&story, "always", &image, "Always", "");
    story.wait(&always, "condition=Ready");
    assert!(registry.asked("hello") > asked, "asked again though it was there");
    // What waited for it finds it now.
    story.wait(&never, "condition=Ready");
}

pub(crate) fn an_image_put_on_the_node_stays_while_others_ask_for_it(cluster: &Cluster) {
    let story = cluster.namespace("pulls-taken");
    let image = "knarr.local/hello:1";
    let taker = run(&story, "taker", image, "Always", "");
    told(&story, &taker, "Pulling image");
    let during = run(&story, "during", image, "Never", "");
    story.wait(&during, "condition=Ready");
    // Its pull ends in the middle, or has failed by now.
    story.kubectl(&["delete", &taker, "--now"]);
    let after = run(&story, "after", image, "Never", "");
    story.wait(&after, "condition=Ready");
}

pub(crate) fn an_image_that_does_not_come_is_asked_for_again_later(cluster: &Cluster) {
    let story = cluster.namespace("pulls-later");
    let registry = registry(cluster);
    let late = run(&story, "late", &registry.image("late"), "Always", "");
    story.wait_value(&late, REASON, "ImagePullBackOff");
    told(&story, &late, "Error: ErrImagePull");
    told(&story, &late, "Back-off pulling image");
    registry.publish("late");
    story.wait(&late, "condition=Ready");
    assert_eq!(
        story.field(&late, "{.status.containerStatuses[0].restartCount}"),
        "0",
        "an image that comes late is no restart"
    );
}

pub(crate) fn a_private_image_wants_the_pods_secret(cluster: &Cluster) {
    let story = cluster.namespace("pulls-private");
    let registry = registry(cluster);
    let image = registry.publish("private/hello");
    let server = format!("--docker-server={}", registry.address);
    for (name, password) in [("right", "open sesame"), ("wrong", "something")] {
        let password = format!("--docker-password={password}");
        let user = "--docker-username=puller";
        story.kubectl(&[
            "create",
            "secret",
            "docker-registry",
            name,
            &server,
            user,
            &password,
        ]);
    }
    let with = |name: &str, secret: &str| {
        run(
            &story,
            name,
            &image,
            "Always",
            &format!("imagePullSecrets: [{{name: {secret}}}],"),
        )
    };
    let refused = [run(&story, "none", &image, "Always", ""), with("wrong", "wrong")];
    for pod in &refused {
        told(&story, pod, "Failed to pull image");
        assert_ne!(story.field(pod, "{.status.phase}"), "Running");
    }
    let right = with("right", "right");
    story.wait(&right, "condition=Ready");
    // It is on the node now, and still only for pods that could pull it.
    let again = run(
        &story,
        "again",
        &image,
        "IfNotPresent",
        "imagePullSecrets: [{name: right}],",
    );
    story.wait(&again, "condition=Ready");
    told(&story, &again, "can be accessed by the pod");
    let thief = run(&story, "thief", &image, "IfNotPresent", "");
    told(&story, &thief, "Failed to pull image");
    let quiet = run(&story, "quiet", &image, "Never", "");
    story.wait_value(&quiet, REASON, "ErrImageNeverPull");
    assert_ne!(story.field(&thief, "{.status.phase}"), "Running");
}
