//! The model of containerd beside containerd: one suite of calls, whose answers are written down line by line. The real
//! one's are data (`containerd-1.6.txt`), so that the model is compared on every run, and the real one where it can run:
//! `cargo test --test likeness -- --ignored` (root). `KNARR_RECORD=1` there writes the data anew.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test, helpers included; it stands outside the product"
)]

mod real;
mod suite;
mod transcript;

use machinery_runtime::{Runtime, Simulation};
use node_cri::CriClient;
use node_cri_model::{Containerd, FaultProfile};
use real::RealContainerd;
use std::path::Path;
use std::sync::Arc;
use transcript::{Daemon, IMAGE, Transcript};

const RECORDED: &str = include_str!("containerd-1.6.txt");

impl Daemon for Containerd {
    fn restart(&self) {
        self.kill();
        self.begin();
    }
}

/// Groups that are kept nowhere.
#[derive(Debug)]
struct NoGroups;

impl node_sys::cgroup::Cgroups for NoGroups {
    fn apply(
        &self,
        _: &str,
        _: &node_sys::cgroup::CgroupResources,
    ) -> Result<(), node_sys::cgroup::CgroupError> {
        Ok(())
    }

    fn limit_huge_pages(
        &self,
        _: &str,
        _: &node_sys::cgroup::HugePageLimits,
    ) -> Result<(), node_sys::cgroup::CgroupError> {
        Ok(())
    }

    fn remove(&self, _: &str) -> Result<(), node_sys::cgroup::CgroupError> {
        Ok(())
    }

    fn limits(&self, _: &str) -> node_sys::cgroup::CgroupResources {
        node_sys::cgroup::CgroupResources::default()
    }

    fn stats(&self, _: &str) -> node_sys::cgroup::CgroupStats {
        node_sys::cgroup::CgroupStats::default()
    }

    fn figures(&self, _: &str) -> Option<node_sys::cgroup::GroupFigures> {
        None
    }

    fn exists(&self, _: &str) -> bool {
        false
    }

    fn children(&self, _: &str) -> Vec<String> {
        Vec::new()
    }

    fn version(&self) -> u8 {
        2
    }

    fn has_memory_file(&self, _: &str, _: &str) -> bool {
        false
    }
}

/// The first line that differs, with those before it.
fn compare(answered: &str, recorded: &str) {
    for (number, (one, other)) in answered.lines().zip(recorded.lines()).enumerate() {
        let before = answered.lines().take(number).collect::<Vec<_>>().join("\n");
        assert_eq!(one, other, "line {} after\n{before}", number + 1);
    }
    assert_eq!(answered.lines().count(), recorded.lines().count());
}

#[test]
fn model_of_containerd_answers_as_recorded() {
    for seed in 0..5 {
        let simulation = Simulation::new(seed);
        let runtime = simulation.runtime();
        let weather = if seed == 0 {
            FaultProfile::none()
        } else {
            FaultProfile::slow()
        };
        let answered = simulation.run(async move {
            let folder = tempfile::tempdir().unwrap();
            let containerd = Containerd::start(&runtime, weather, Arc::new(NoGroups));
            containerd.add_image(IMAGE);
            let cri = CriClient::connect_through(containerd.transport(), "/model".into());
            suite::run(
                Transcript::new(runtime, cri, folder.path(), "/likeness"),
                &containerd,
            )
            .await
        });
        compare(&answered, RECORDED);
    }
}

#[tokio::test]
#[ignore = "needs root"]
async fn containerd_answers_as_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = Runtime::real();
    let Some(containerd) = RealContainerd::start(folder.path(), &runtime).await else {
        return;
    };
    let parent = format!("/knarr-likeness-{}", std::process::id());
    let transcript = Transcript::new(runtime, containerd.client(), folder.path(), &parent);
    let answered = suite::run(transcript, &containerd).await;
    let _ = node_sys::cgroup::detect().remove(&parent);
    if std::env::var("KNARR_RECORD").is_ok() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/likeness/containerd-1.6.txt");
        std::fs::write(path, &answered).unwrap();
        return;
    }
    compare(&answered, RECORDED);
}
