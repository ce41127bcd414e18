//! The calls, in chapters.

use crate::transcript::{Daemon, Transcript};
use machinery_runtime::TaskHandle;
use node_cri::events::{TaskEvent, subscribe};
use node_cri::v1;
use node_cri_model::Program;
use std::sync::{Arc, Mutex};

pub(crate) async fn run(mut transcript: Transcript, daemon: &(dyn Daemon + Sync)) -> String {
    sandboxes(&mut transcript).await;
    containers(&mut transcript).await;
    endings(&mut transcript).await;
    refusals(&mut transcript).await;
    commands(&mut transcript).await;
    logs(&mut transcript).await;
    removals(&mut transcript).await;
    lists(&mut transcript).await;
    events(&mut transcript).await;
    images(&mut transcript).await;
    restarts(&mut transcript, daemon).await;
    transcript.text()
}

async fn sandbox_lines(transcript: &mut Transcript, id: &str) {
    match transcript.sandbox_status(id).await {
        Ok(status) => {
            let state = v1::PodSandboxState::try_from(status.state).unwrap();
            let line = format!(
                "{id} is {}, {:?} {:?} {:?}, address {:?}, created {}",
                state.as_str_name(),
                status.metadata.unwrap_or_default(),
                status.labels,
                status.annotations,
                status.network.unwrap_or_default().ip,
                status.created_at > 0
            );
            transcript.line(&line);
        }
        Err(error) => transcript.outcome::<()>("asking for a sandbox", &Err(error)),
    }
}

async fn sandboxes(transcript: &mut Transcript) {
    transcript.line("# sandboxes");
    let id = transcript.sandbox("one").await.unwrap();
    sandbox_lines(transcript, &id).await;
    let again = transcript.run_sandbox(transcript.sandbox_config("one")).await;
    transcript.outcome("the same again", &again);
    let nameless = v1::PodSandboxConfig {
        metadata: None,
        ..transcript.sandbox_config("one")
    };
    let nameless = transcript.run_sandbox(nameless).await;
    transcript.outcome("without a name", &nameless);
    let handler = v1::RunPodSandboxRequest {
        config: Some(transcript.sandbox_config("other")),
        runtime_handler: "strange".to_owned(),
    };
    let handler = transcript.cri.run_pod_sandbox(handler).await;
    transcript.outcome("by a strange handler", &handler);
    for _ in 0..2 {
        let stopped = transcript.stop_sandbox(&id).await;
        transcript.outcome("stopping", &stopped);
        sandbox_lines(transcript, &id).await;
    }
    for _ in 0..2 {
        let removed = transcript.remove_sandbox(&id).await;
        transcript.outcome("removing", &removed);
        sandbox_lines(transcript, &id).await;
    }
    let gone = transcript.stop_sandbox(&id).await;
    transcript.outcome("stopping what is gone", &gone);
    // The name is free again.
    let id = transcript.sandbox("one").await.unwrap();
    transcript.remove_sandbox(&id).await.unwrap();
}

async fn containers(transcript: &mut Transcript) {
    transcript.line("# containers");
    let sandbox = transcript.sandbox("life").await.unwrap();
    let config = transcript.container_config("main", &Program::serving());
    let id = transcript
        .container((&sandbox, "life"), config.clone())
        .await
        .unwrap();
    transcript.tell_container(&id).await;
    let again = transcript.container((&sandbox, "life"), config.clone()).await;
    transcript.outcome("the same again", &again);
    let started = transcript.start(&id).await;
    transcript.outcome("starting", &started);
    transcript.tell_container(&id).await;
    let again = transcript.start(&id).await;
    transcript.outcome("starting again", &again);
    for _ in 0..2 {
        let stopped = transcript.cri.stop_container(&id, 30).await;
        transcript.outcome("stopping", &stopped);
        transcript.tell_container(&id).await;
    }
    let again = transcript.start(&id).await;
    transcript.outcome("starting what has ended", &again);
    for _ in 0..2 {
        let removed = transcript.remove(&id).await;
        transcript.outcome("removing", &removed);
        transcript.tell_container(&id).await;
    }
    let gone = transcript.start(&id).await;
    transcript.outcome("starting what is gone", &gone);
    let gone = transcript.cri.stop_container(&id, 1).await;
    transcript.outcome("stopping what is gone", &gone);
    let id = transcript.container((&sandbox, "life"), config).await.unwrap();
    let stopped = transcript.cri.stop_container(&id, 1).await;
    transcript.outcome("stopping what never started", &stopped);
    transcript.tell_container(&id).await;
    transcript.remove_sandbox(&sandbox).await.unwrap();
    transcript.tell_container(&id).await;
}

async fn endings(transcript: &mut Transcript) {
    transcript.line("# endings");
    let sandbox = transcript.sandbox("ends").await.unwrap();
    for (name, program) in [("well", Program::ending(0, 0)), ("badly", Program::ending(1, 3))] {
        let config = transcript.container_config(name, &program);
        let id = transcript.container((&sandbox, "ends"), config).await.unwrap();
        transcript.start(&id).await.unwrap();
        transcript.until_exited(&id).await;
        transcript.tell_container(&id).await;
    }
    for (name, program, grace) in [
        ("stubborn", Program::default(), 1),
        ("killed", Program::serving(), 0),
        (
            "told",
            Program {
                on_term: Some(7),
                ..Program::serving()
            },
            30,
        ),
    ] {
        let config = transcript.container_config(name, &program);
        let id = transcript.container((&sandbox, "ends"), config).await.unwrap();
        transcript.start(&id).await.unwrap();
        // Its shell needs a moment to say what the signal means.
        settle(transcript, &id).await;
        let stopped = transcript.cri.stop_container(&id, grace).await;
        transcript.outcome(name, &stopped);
        transcript.tell_container(&id).await;
    }
    let words = transcript.folder.join("words");
    std::fs::write(&words, "").unwrap();
    let program = Program {
        last_words: "farewell".to_owned(),
        ..Program::ending(0, 1)
    };
    let mut config = transcript.container_config("speaks", &program);
    config.mounts = vec![v1::Mount {
        container_path: "/dev/termination-log".to_owned(),
        host_path: words.display().to_string(),
        ..v1::Mount::default()
    }];
    let id = transcript.container((&sandbox, "ends"), config).await.unwrap();
    transcript.start(&id).await.unwrap();
    transcript.until_exited(&id).await;
    let said = std::fs::read_to_string(&words).unwrap();
    transcript.line(&format!("its last words: {said}"));
    transcript.remove_sandbox(&sandbox).await.unwrap();
}

async fn settle(transcript: &Transcript, id: &str) {
    let program = Program::ending(1, 0);
    transcript.cri.exec_sync(id, program.command(), 30).await.unwrap();
}

async fn refusals(transcript: &mut Transcript) {
    transcript.line("# refusals");
    let sandbox = transcript.sandbox("refuses").await.unwrap();
    let program = Program::serving();
    let config = transcript.container_config("main", &program);
    let nowhere = transcript
        .container((&"0".repeat(64), "refuses"), config.clone())
        .await;
    transcript.outcome("in no sandbox", &nowhere);
    let mut imageless = config.clone();
    imageless.image = Some(v1::ImageSpec {
        image: "knarr.test/nowhere:1".to_owned(),
        ..v1::ImageSpec::default()
    });
    let imageless = transcript.container((&sandbox, "refuses"), imageless).await;
    transcript.outcome("of no image", &imageless);
    let mut wrong = transcript.container_config("wrong", &program);
    wrong.command = vec!["nothing-to-run".to_owned()];
    let wrong = transcript.container((&sandbox, "refuses"), wrong).await.unwrap();
    let started = transcript.start(&wrong).await;
    transcript.outcome("with nothing to run", &started);
    transcript.tell_container(&wrong).await;
    let late = transcript.container((&sandbox, "refuses"), config).await.unwrap();
    transcript.stop_sandbox(&sandbox).await.unwrap();
    transcript.tell_container(&late).await;
    let started = transcript.start(&late).await;
    transcript.outcome("in a stopped sandbox", &started);
    transcript.tell_container(&late).await;
    let config = transcript.container_config("later", &program);
    let made = transcript.container((&sandbox, "refuses"), config).await;
    transcript.outcome("made in a stopped sandbox", &made);
    transcript.remove_sandbox(&sandbox).await.unwrap();
}

async fn commands(transcript: &mut Transcript) {
    transcript.line("# commands");
    let sandbox = transcript.sandbox("execs").await.unwrap();
    let config = transcript.container_config(
        "main",
        &Program {
            unwell_after: Some(5),
            ..Program::serving()
        },
    );
    let id = transcript.container((&sandbox, "execs"), config).await.unwrap();
    let early = transcript
        .cri
        .exec_sync(&id, Program::ending(0, 0).command(), 0)
        .await;
    transcript.outcome("before it is started", &early);
    transcript.start(&id).await.unwrap();
    let well = transcript
        .cri
        .exec_sync(&id, Program::question().command(), 10)
        .await
        .unwrap();
    transcript.line(&format!("is well: {}", well.exit_code));
    let loud = Program {
        prints: "hello".to_owned(),
        ..Program::ending(0, 3)
    };
    let answer = transcript.cri.exec_sync(&id, loud.command(), 10).await;
    transcript.outcome("a command", &answer);
    let answer = answer.unwrap();
    let (out, code) = (String::from_utf8(answer.stdout).unwrap(), answer.exit_code);
    transcript.line(&format!("printed {out:?} and ended with {code}"));
    let long = transcript
        .cri
        .exec_sync(&id, Program::ending(30, 0).command(), 1)
        .await;
    transcript.outcome("a long command", &long);
    let wrong = transcript
        .cri
        .exec_sync(&id, vec!["nothing-to-run".to_owned()], 10)
        .await;
    transcript.outcome("no command", &wrong);
    let unwell = || async {
        let answer = transcript
            .cri
            .exec_sync(&id, Program::question().command(), 10)
            .await;
        answer.unwrap().exit_code == 1
    };
    transcript.until(unwell).await;
    transcript.cri.stop_container(&id, 0).await.unwrap();
    let late = transcript
        .cri
        .exec_sync(&id, Program::ending(0, 0).command(), 0)
        .await;
    transcript.outcome("after its end", &late);
    let gone = transcript
        .cri
        .exec_sync(&"0".repeat(64), Program::ending(0, 0).command(), 0)
        .await;
    transcript.outcome("nowhere", &gone);
    transcript.remove_sandbox(&sandbox).await.unwrap();
}

async fn logs(transcript: &mut Transcript) {
    transcript.line("# logs");
    let sandbox = transcript.sandbox("logs").await.unwrap();
    let program = Program {
        prints: "a line".to_owned(),
        ..Program::serving()
    };
    let id = transcript
        .container((&sandbox, "logs"), transcript.container_config("main", &program))
        .await
        .unwrap();
    let log = transcript.folder.join("logs/logs/main.log");
    transcript.line(&format!("before it is started: {}", log.exists()));
    let reopen = |id: &str| v1::ReopenContainerLogRequest {
        container_id: id.to_owned(),
    };
    let early = transcript.cri.reopen_container_log(reopen(&id)).await;
    transcript.outcome("reopening early", &early);
    transcript.start(&id).await.unwrap();
    transcript
        .until(|| async { !std::fs::read_to_string(&log).unwrap().is_empty() })
        .await;
    let text = std::fs::read_to_string(&log).unwrap();
    transcript.line(&format!("without its time: {}", text.split_once(' ').unwrap().1));
    std::fs::rename(&log, log.with_extension("old")).unwrap();
    let reopened = transcript.cri.reopen_container_log(reopen(&id)).await;
    transcript.outcome("reopening", &reopened);
    transcript.line(&format!("there is a new one: {}", log.exists()));
    transcript.cri.stop_container(&id, 0).await.unwrap();
    let late = transcript.cri.reopen_container_log(reopen(&id)).await;
    transcript.outcome("reopening late", &late);
    let mut config = transcript.container_config("lost", &program);
    config.log_path = "nowhere/lost.log".to_owned();
    let id = transcript.container((&sandbox, "logs"), config).await.unwrap();
    let started = transcript.start(&id).await;
    transcript.outcome("without a folder for its log", &started);
    transcript.tell_container(&id).await;
    transcript.remove_sandbox(&sandbox).await.unwrap();
}

async fn removals(transcript: &mut Transcript) {
    transcript.line("# removals");
    let sandbox = transcript.sandbox("goes").await.unwrap();
    let mut ids = Vec::new();
    for name in ["a", "b"] {
        let config = transcript.container_config(name, &Program::serving());
        let id = transcript.container((&sandbox, "goes"), config).await.unwrap();
        transcript.start(&id).await.unwrap();
        ids.push(id);
    }
    let removed = transcript.remove(&ids[0]).await;
    transcript.outcome("removing what runs", &removed);
    transcript.tell_container(&ids[0]).await;
    let update = |id: &str| v1::UpdateContainerResourcesRequest {
        container_id: id.to_owned(),
        linux: Some(v1::LinuxContainerResources {
            cpu_shares: 512,
            ..v1::LinuxContainerResources::default()
        }),
        ..v1::UpdateContainerResourcesRequest::default()
    };
    let updated = transcript.cri.update_container_resources(update(&ids[1])).await;
    transcript.outcome("changing its resources", &updated);
    let updated = transcript.cri.update_container_resources(update(&ids[0])).await;
    transcript.outcome("changing those of what is gone", &updated);
    let stopped = transcript.stop_sandbox(&sandbox).await;
    transcript.outcome("stopping a sandbox in which something runs", &stopped);
    transcript.tell_container(&ids[1]).await;
    let removed = transcript.remove_sandbox(&sandbox).await;
    transcript.outcome("removing it", &removed);
    transcript.tell_container(&ids[1]).await;
}

async fn lists(transcript: &mut Transcript) {
    transcript.line("# lists");
    let sandbox = transcript.sandbox("lists").await.unwrap();
    for name in ["runs", "waits"] {
        let config = transcript.container_config(name, &Program::serving());
        let id = transcript.container((&sandbox, "lists"), config).await.unwrap();
        if name == "runs" {
            transcript.start(&id).await.unwrap();
        }
    }
    let label = |name: &str, value: &str| [(name.to_owned(), value.to_owned())].into();
    let in_state = |state: v1::ContainerState| Some(v1::ContainerStateValue { state: state as i32 });
    let filters = [
        v1::ContainerFilter::default(),
        v1::ContainerFilter {
            label_selector: label("container", "waits"),
            ..v1::ContainerFilter::default()
        },
        v1::ContainerFilter {
            state: in_state(v1::ContainerState::ContainerRunning),
            ..v1::ContainerFilter::default()
        },
        v1::ContainerFilter {
            pod_sandbox_id: sandbox.clone(),
            ..v1::ContainerFilter::default()
        },
        v1::ContainerFilter {
            pod_sandbox_id: "0".repeat(64),
            ..v1::ContainerFilter::default()
        },
    ];
    for filter in filters {
        let request = v1::ListContainersRequest { filter: Some(filter) };
        let found = transcript.cri.list_containers(request).await.unwrap().containers;
        let mut found: Vec<String> = found
            .iter()
            .map(|one| format!("{} {}", one.id, one.state))
            .collect();
        found.sort_by_key(|line| line.ends_with('0'));
        transcript.line(&format!("containers: {found:?}"));
    }
    for pod in ["lists", "none"] {
        let filter = v1::PodSandboxFilter {
            label_selector: label("pod", pod),
            ..v1::PodSandboxFilter::default()
        };
        let request = v1::ListPodSandboxRequest { filter: Some(filter) };
        let found = transcript.cri.list_pod_sandbox(request).await.unwrap().items;
        let found: Vec<String> = found
            .iter()
            .map(|one| format!("{} {}", one.id, one.state))
            .collect();
        transcript.line(&format!("sandboxes: {found:?}"));
    }
    transcript.remove_sandbox(&sandbox).await.unwrap();
}

/// Collects events until the stream ends, from when it counts on.
async fn collect(transcript: &mut Transcript) -> (Arc<Mutex<Vec<TaskEvent>>>, TaskHandle<()>) {
    let collected: Arc<Mutex<Vec<TaskEvent>>> = Arc::default();
    let (mut stream, into) = (subscribe(&transcript.cri), collected.clone());
    let collecting = async move {
        while let Some(event) = stream.next_event().await {
            into.lock().unwrap().push(event);
        }
    };
    let collecting = transcript.runtime.spawn("collector", collecting);
    // Nothing shows that the subscription counts, but an event.
    let marks = transcript.sandbox("marks").await.unwrap();
    let mut attempt = 0;
    while collected.lock().unwrap().is_empty() {
        let mut config = transcript.container_config("mark", &Program::ending(0, 0));
        config.metadata.as_mut().unwrap().attempt = attempt;
        let id = transcript.container((&marks, "marks"), config).await.unwrap();
        transcript.start(&id).await.unwrap();
        transcript.until_exited(&id).await;
        attempt += 1;
    }
    transcript.remove_sandbox(&marks).await.unwrap();
    (collected, collecting)
}

async fn events(transcript: &mut Transcript) {
    transcript.line("# events");
    let (collected, collecting) = collect(transcript).await;
    let sandbox = transcript.sandbox("tells").await.unwrap();
    let config = transcript.container_config("main", &Program::ending(1, 0));
    let id = transcript.container((&sandbox, "tells"), config).await.unwrap();
    transcript.start(&id).await.unwrap();
    transcript.until_exited(&id).await;
    transcript.remove_sandbox(&sandbox).await.unwrap();
    let of_pod = || {
        let events = collected.lock().unwrap().clone();
        let ours = events
            .into_iter()
            .filter(|event| [&sandbox, &id].iter().any(|id| *id == event.container_id()));
        ours.collect::<Vec<_>>()
    };
    transcript.until(|| async { of_pod().len() == 4 }).await;
    for event in of_pod() {
        transcript.line(&format!("{event:?}"));
    }
    collecting.abort();
}

async fn images(transcript: &mut Transcript) {
    transcript.line("# images");
    let named = |name: &str| {
        Some(v1::ImageSpec {
            image: name.to_owned(),
            ..v1::ImageSpec::default()
        })
    };
    for name in [crate::transcript::IMAGE, "knarr.test/nowhere:1"] {
        let request = v1::ImageStatusRequest {
            image: named(name),
            verbose: false,
        };
        let found = transcript.cri.image_status(request).await.unwrap().image;
        let tags = found.map(|image| (image.repo_tags, image.id.starts_with("sha256:")));
        transcript.line(&format!("{name}: {tags:?}"));
    }
    let request = v1::RemoveImageRequest {
        image: named("knarr.test/nowhere:1"),
    };
    let removed = transcript.cri.remove_image(request).await;
    transcript.outcome("removing an image that is not there", &removed);
}

async fn restarts(transcript: &mut Transcript, daemon: &(dyn Daemon + Sync)) {
    transcript.line("# restarts");
    let sandbox = transcript.sandbox("survives").await.unwrap();
    let mut ids = Vec::new();
    for (name, program, starts) in [
        ("runs", Program::serving(), true),
        ("ended", Program::ending(0, 2), true),
        ("ends", Program::ending(3, 5), true),
        ("waits", Program::serving(), false),
    ] {
        let config = transcript.container_config(name, &program);
        let id = transcript
            .container((&sandbox, "survives"), config)
            .await
            .unwrap();
        if starts {
            transcript.start(&id).await.unwrap();
        }
        ids.push(id);
    }
    transcript.until_exited(&ids[1]).await;
    let (_, collecting) = collect(transcript).await;
    daemon.restart();
    // Ends with the daemon, whatever it has sent.
    let _ = collecting.await;
    let version = || transcript.cri.version(v1::VersionRequest::default());
    transcript.until(|| async { version().await.is_ok() }).await;
    sandbox_lines(transcript, &sandbox).await;
    transcript.until_exited(&ids[2]).await;
    for id in &ids {
        transcript.tell_container(id).await;
    }
    let again = transcript
        .run_sandbox(transcript.sandbox_config("survives"))
        .await;
    transcript.outcome("the same again", &again);
    let stopped = transcript.cri.stop_container(&ids[0], 30).await;
    transcript.outcome("stopping what ran on", &stopped);
    transcript.tell_container(&ids[0]).await;
    let started = transcript.start(&ids[3]).await;
    transcript.outcome("starting what waited", &started);
    transcript.tell_container(&ids[3]).await;
    let removed = transcript.remove_sandbox(&sandbox).await;
    transcript.outcome("removing all", &removed);
}
