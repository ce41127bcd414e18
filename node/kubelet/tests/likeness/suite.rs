//! The calls, in chapters.

use crate::place::{Daemon, Place};
use machinery_runtime::TaskHandle;
use node_cri::events::{TaskEvent, subscribe};
use node_cri::v1;
use node_cri_model::Program;
use std::sync::{Arc, Mutex};

pub(crate) async fn run(mut place: Place, daemon: &(dyn Daemon + Sync)) -> String {
    sandboxes(&mut place).await;
    containers(&mut place).await;
    endings(&mut place).await;
    refusals(&mut place).await;
    commands(&mut place).await;
    logs(&mut place).await;
    removals(&mut place).await;
    lists(&mut place).await;
    events(&mut place).await;
    images(&mut place).await;
    restarts(&mut place, daemon).await;
    place.text()
}

async fn tell_sandbox(place: &mut Place, id: &str) {
    match place.sandbox_status(id).await {
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
            place.say(&line);
        }
        Err(error) => place.tell::<()>("asking for a sandbox", &Err(error)),
    }
}

async fn sandboxes(place: &mut Place) {
    place.say("# sandboxes");
    let id = place.sandbox("one").await.unwrap();
    tell_sandbox(place, &id).await;
    let again = place.run_sandbox(place.sandbox_config("one")).await;
    place.tell("the same again", &again);
    let nameless = v1::PodSandboxConfig {
        metadata: None,
        ..place.sandbox_config("one")
    };
    let nameless = place.run_sandbox(nameless).await;
    place.tell("without a name", &nameless);
    let handler = v1::RunPodSandboxRequest {
        config: Some(place.sandbox_config("other")),
        runtime_handler: "strange".to_owned(),
    };
    let handler = place.cri.run_pod_sandbox(handler).await;
    place.tell("by a strange handler", &handler);
    for _ in 0..2 {
        let stopped = place.stop_sandbox(&id).await;
        place.tell("stopping", &stopped);
        tell_sandbox(place, &id).await;
    }
    for _ in 0..2 {
        let removed = place.remove_sandbox(&id).await;
        place.tell("removing", &removed);
        tell_sandbox(place, &id).await;
    }
    let gone = place.stop_sandbox(&id).await;
    place.tell("stopping what is gone", &gone);
    // The name is free again.
    let id = place.sandbox("one").await.unwrap();
    place.remove_sandbox(&id).await.unwrap();
}

async fn containers(place: &mut Place) {
    place.say("# containers");
    let sandbox = place.sandbox("life").await.unwrap();
    let config = place.container_config("main", &Program::serving());
    let id = place.container((&sandbox, "life"), config.clone()).await.unwrap();
    place.tell_container(&id).await;
    let again = place.container((&sandbox, "life"), config.clone()).await;
    place.tell("the same again", &again);
    let started = place.start(&id).await;
    place.tell("starting", &started);
    place.tell_container(&id).await;
    let again = place.start(&id).await;
    place.tell("starting again", &again);
    for _ in 0..2 {
        let stopped = place.cri.stop_container(&id, 30).await;
        place.tell("stopping", &stopped);
        place.tell_container(&id).await;
    }
    let again = place.start(&id).await;
    place.tell("starting what has ended", &again);
    for _ in 0..2 {
        let removed = place.remove(&id).await;
        place.tell("removing", &removed);
        place.tell_container(&id).await;
    }
    let gone = place.start(&id).await;
    place.tell("starting what is gone", &gone);
    let gone = place.cri.stop_container(&id, 1).await;
    place.tell("stopping what is gone", &gone);
    let id = place.container((&sandbox, "life"), config).await.unwrap();
    let stopped = place.cri.stop_container(&id, 1).await;
    place.tell("stopping what never started", &stopped);
    place.tell_container(&id).await;
    place.remove_sandbox(&sandbox).await.unwrap();
    place.tell_container(&id).await;
}

async fn endings(place: &mut Place) {
    place.say("# endings");
    let sandbox = place.sandbox("ends").await.unwrap();
    for (name, program) in [("well", Program::ending(0, 0)), ("badly", Program::ending(1, 3))] {
        let config = place.container_config(name, &program);
        let id = place.container((&sandbox, "ends"), config).await.unwrap();
        place.start(&id).await.unwrap();
        place.until_exited(&id).await;
        place.tell_container(&id).await;
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
        let config = place.container_config(name, &program);
        let id = place.container((&sandbox, "ends"), config).await.unwrap();
        place.start(&id).await.unwrap();
        // Its shell needs a moment to say what the signal means.
        settle(place, &id).await;
        let stopped = place.cri.stop_container(&id, grace).await;
        place.tell(name, &stopped);
        place.tell_container(&id).await;
    }
    let words = place.folder.join("words");
    std::fs::write(&words, "").unwrap();
    let program = Program {
        last_words: "farewell".to_owned(),
        ..Program::ending(0, 1)
    };
    let mut config = place.container_config("speaks", &program);
    config.mounts = vec![v1::Mount {
        container_path: "/dev/termination-log".to_owned(),
        host_path: words.display().to_string(),
        ..v1::Mount::default()
    }];
    let id = place.container((&sandbox, "ends"), config).await.unwrap();
    place.start(&id).await.unwrap();
    place.until_exited(&id).await;
    let said = std::fs::read_to_string(&words).unwrap();
    place.say(&format!("its last words: {said}"));
    place.remove_sandbox(&sandbox).await.unwrap();
}

async fn settle(place: &Place, id: &str) {
    let program = Program::ending(1, 0);
    place.cri.exec_sync(id, program.command(), 30).await.unwrap();
}

async fn refusals(place: &mut Place) {
    place.say("# refusals");
    let sandbox = place.sandbox("refuses").await.unwrap();
    let program = Program::serving();
    let config = place.container_config("main", &program);
    let nowhere = place
        .container((&"0".repeat(64), "refuses"), config.clone())
        .await;
    place.tell("in no sandbox", &nowhere);
    let mut imageless = config.clone();
    imageless.image = Some(v1::ImageSpec {
        image: "knarr.test/nowhere:1".to_owned(),
        ..v1::ImageSpec::default()
    });
    let imageless = place.container((&sandbox, "refuses"), imageless).await;
    place.tell("of no image", &imageless);
    let mut wrong = place.container_config("wrong", &program);
    wrong.command = vec!["nothing-to-run".to_owned()];
    let wrong = place.container((&sandbox, "refuses"), wrong).await.unwrap();
    let started = place.start(&wrong).await;
    place.tell("with nothing to run", &started);
    place.tell_container(&wrong).await;
    let late = place.container((&sandbox, "refuses"), config).await.unwrap();
    place.stop_sandbox(&sandbox).await.unwrap();
    place.tell_container(&late).await;
    let started = place.start(&late).await;
    place.tell("in a stopped sandbox", &started);
    place.tell_container(&late).await;
    let config = place.container_config("later", &program);
    let made = place.container((&sandbox, "refuses"), config).await;
    place.tell("made in a stopped sandbox", &made);
    place.remove_sandbox(&sandbox).await.unwrap();
}

async fn commands(place: &mut Place) {
    place.say("# commands");
    let sandbox = place.sandbox("execs").await.unwrap();
    let config = place.container_config(
        "main",
        &Program {
            unwell_after: Some(5),
            ..Program::serving()
        },
    );
    let id = place.container((&sandbox, "execs"), config).await.unwrap();
    let early = place.cri.exec_sync(&id, Program::ending(0, 0).command(), 0).await;
    place.tell("before it is started", &early);
    place.start(&id).await.unwrap();
    let well = place
        .cri
        .exec_sync(&id, Program::question().command(), 10)
        .await
        .unwrap();
    place.say(&format!("is well: {}", well.exit_code));
    let loud = Program {
        prints: "hello".to_owned(),
        ..Program::ending(0, 3)
    };
    let answer = place.cri.exec_sync(&id, loud.command(), 10).await;
    place.tell("a command", &answer);
    let answer = answer.unwrap();
    let (out, code) = (String::from_utf8(answer.stdout).unwrap(), answer.exit_code);
    place.say(&format!("printed {out:?} and ended with {code}"));
    let long = place
        .cri
        .exec_sync(&id, Program::ending(30, 0).command(), 1)
        .await;
    place.tell("a long command", &long);
    let wrong = place
        .cri
        .exec_sync(&id, vec!["nothing-to-run".to_owned()], 10)
        .await;
    place.tell("no command", &wrong);
    let unwell = || async {
        let answer = place.cri.exec_sync(&id, Program::question().command(), 10).await;
        answer.unwrap().exit_code == 1
    };
    place.until(unwell).await;
    place.cri.stop_container(&id, 0).await.unwrap();
    let late = place.cri.exec_sync(&id, Program::ending(0, 0).command(), 0).await;
    place.tell("after its end", &late);
    let gone = place
        .cri
        .exec_sync(&"0".repeat(64), Program::ending(0, 0).command(), 0)
        .await;
    place.tell("nowhere", &gone);
    place.remove_sandbox(&sandbox).await.unwrap();
}

async fn logs(place: &mut Place) {
    place.say("# logs");
    let sandbox = place.sandbox("logs").await.unwrap();
    let program = Program {
        prints: "a line".to_owned(),
        ..Program::serving()
    };
    let id = place
        .container((&sandbox, "logs"), place.container_config("main", &program))
        .await
        .unwrap();
    let log = place.folder.join("logs/logs/main.log");
    place.say(&format!("before it is started: {}", log.exists()));
    let reopen = |id: &str| v1::ReopenContainerLogRequest {
        container_id: id.to_owned(),
    };
    let early = place.cri.reopen_container_log(reopen(&id)).await;
    place.tell("reopening early", &early);
    place.start(&id).await.unwrap();
    place
        .until(|| async { !std::fs::read_to_string(&log).unwrap().is_empty() })
        .await;
    let text = std::fs::read_to_string(&log).unwrap();
    place.say(&format!("without its time: {}", text.split_once(' ').unwrap().1));
    std::fs::rename(&log, log.with_extension("old")).unwrap();
    let reopened = place.cri.reopen_container_log(reopen(&id)).await;
    place.tell("reopening", &reopened);
    place.say(&format!("there is a new one: {}", log.exists()));
    place.cri.stop_container(&id, 0).await.unwrap();
    let late = place.cri.reopen_container_log(reopen(&id)).await;
    place.tell("reopening late", &late);
    let mut config = place.container_config("lost", &program);
    config.log_path = "nowhere/lost.log".to_owned();
    let id = place.container((&sandbox, "logs"), config).await.unwrap();
    let started = place.start(&id).await;
    place.tell("without a folder for its log", &started);
    place.tell_container(&id).await;
    place.remove_sandbox(&sandbox).await.unwrap();
}

async fn removals(place: &mut Place) {
    place.say("# removals");
    let sandbox = place.sandbox("goes").await.unwrap();
    let mut ids = Vec::new();
    for name in ["a", "b"] {
        let config = place.container_config(name, &Program::serving());
        let id = place.container((&sandbox, "goes"), config).await.unwrap();
        place.start(&id).await.unwrap();
        ids.push(id);
    }
    let removed = place.remove(&ids[0]).await;
    place.tell("removing what runs", &removed);
    place.tell_container(&ids[0]).await;
    let update = |id: &str| v1::UpdateContainerResourcesRequest {
        container_id: id.to_owned(),
        linux: Some(v1::LinuxContainerResources {
            cpu_shares: 512,
            ..v1::LinuxContainerResources::default()
        }),
        ..v1::UpdateContainerResourcesRequest::default()
    };
    let updated = place.cri.update_container_resources(update(&ids[1])).await;
    place.tell("changing its resources", &updated);
    let updated = place.cri.update_container_resources(update(&ids[0])).await;
    place.tell("changing those of what is gone", &updated);
    let stopped = place.stop_sandbox(&sandbox).await;
    place.tell("stopping a sandbox in which something runs", &stopped);
    place.tell_container(&ids[1]).await;
    let removed = place.remove_sandbox(&sandbox).await;
    place.tell("removing it", &removed);
    place.tell_container(&ids[1]).await;
}

async fn lists(place: &mut Place) {
    place.say("# lists");
    let sandbox = place.sandbox("lists").await.unwrap();
    for name in ["runs", "waits"] {
        let config = place.container_config(name, &Program::serving());
        let id = place.container((&sandbox, "lists"), config).await.unwrap();
        if name == "runs" {
            place.start(&id).await.unwrap();
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
        let found = place.cri.list_containers(request).await.unwrap().containers;
        let mut found: Vec<String> = found
            .iter()
            .map(|one| format!("{} {}", one.id, one.state))
            .collect();
        found.sort_by_key(|line| line.ends_with('0'));
        place.say(&format!("containers: {found:?}"));
    }
    for pod in ["lists", "none"] {
        let filter = v1::PodSandboxFilter {
            label_selector: label("pod", pod),
            ..v1::PodSandboxFilter::default()
        };
        let request = v1::ListPodSandboxRequest { filter: Some(filter) };
        let found = place.cri.list_pod_sandbox(request).await.unwrap().items;
        let found: Vec<String> = found
            .iter()
            .map(|one| format!("{} {}", one.id, one.state))
            .collect();
        place.say(&format!("sandboxes: {found:?}"));
    }
    place.remove_sandbox(&sandbox).await.unwrap();
}

/// Collects events until the stream ends, from when it counts on.
async fn collect(place: &mut Place) -> (Arc<Mutex<Vec<TaskEvent>>>, TaskHandle<()>) {
    let collected: Arc<Mutex<Vec<TaskEvent>>> = Arc::default();
    let (mut stream, into) = (subscribe(&place.cri), collected.clone());
    let collecting = async move {
        while let Some(event) = stream.next_event().await {
            into.lock().unwrap().push(event);
        }
    };
    let collecting = place.runtime.spawn("collector", collecting);
    // Nothing tells that the subscription counts, but an event.
    let marks = place.sandbox("marks").await.unwrap();
    let mut attempt = 0;
    while collected.lock().unwrap().is_empty() {
        let mut config = place.container_config("mark", &Program::ending(0, 0));
        config.metadata.as_mut().unwrap().attempt = attempt;
        let id = place.container((&marks, "marks"), config).await.unwrap();
        place.start(&id).await.unwrap();
        place.until_exited(&id).await;
        attempt += 1;
    }
    place.remove_sandbox(&marks).await.unwrap();
    (collected, collecting)
}

async fn events(place: &mut Place) {
    place.say("# events");
    let (collected, collecting) = collect(place).await;
    let sandbox = place.sandbox("tells").await.unwrap();
    let config = place.container_config("main", &Program::ending(1, 0));
    let id = place.container((&sandbox, "tells"), config).await.unwrap();
    place.start(&id).await.unwrap();
    place.until_exited(&id).await;
    place.remove_sandbox(&sandbox).await.unwrap();
    let of_pod = || {
        let events = collected.lock().unwrap().clone();
        let ours = events
            .into_iter()
            .filter(|event| [&sandbox, &id].iter().any(|id| *id == event.container_id()));
        ours.collect::<Vec<_>>()
    };
    place.until(|| async { of_pod().len() == 4 }).await;
    for event in of_pod() {
        place.say(&format!("{event:?}"));
    }
    collecting.abort();
}

async fn images(place: &mut Place) {
    place.say("# images");
    let named = |name: &str| {
        Some(v1::ImageSpec {
            image: name.to_owned(),
            ..v1::ImageSpec::default()
        })
    };
    for name in [crate::place::IMAGE, "knarr.test/nowhere:1"] {
        let request = v1::ImageStatusRequest {
            image: named(name),
            verbose: false,
        };
        let found = place.cri.image_status(request).await.unwrap().image;
        let tags = found.map(|image| (image.repo_tags, image.id.starts_with("sha256:")));
        place.say(&format!("{name}: {tags:?}"));
    }
    let request = v1::RemoveImageRequest {
        image: named("knarr.test/nowhere:1"),
    };
    let removed = place.cri.remove_image(request).await;
    place.tell("removing an image that is not there", &removed);
}

async fn restarts(place: &mut Place, daemon: &(dyn Daemon + Sync)) {
    place.say("# restarts");
    let sandbox = place.sandbox("survives").await.unwrap();
    let mut ids = Vec::new();
    for (name, program, starts) in [
        ("runs", Program::serving(), true),
        ("ended", Program::ending(0, 2), true),
        ("ends", Program::ending(3, 5), true),
        ("waits", Program::serving(), false),
    ] {
        let config = place.container_config(name, &program);
        let id = place.container((&sandbox, "survives"), config).await.unwrap();
        if starts {
            place.start(&id).await.unwrap();
        }
        ids.push(id);
    }
    place.until_exited(&ids[1]).await;
    let (_, collecting) = collect(place).await;
    daemon.restart();
    // Ends with the daemon, whatever it has told.
    let _ = collecting.await;
    let version = || place.cri.version(v1::VersionRequest::default());
    place.until(|| async { version().await.is_ok() }).await;
    tell_sandbox(place, &sandbox).await;
    place.until_exited(&ids[2]).await;
    for id in &ids {
        place.tell_container(id).await;
    }
    let again = place.run_sandbox(place.sandbox_config("survives")).await;
    place.tell("the same again", &again);
    let stopped = place.cri.stop_container(&ids[0], 30).await;
    place.tell("stopping what ran on", &stopped);
    place.tell_container(&ids[0]).await;
    let started = place.start(&ids[3]).await;
    place.tell("starting what waited", &started);
    place.tell_container(&ids[3]).await;
    let removed = place.remove_sandbox(&sandbox).await;
    place.tell("removing all", &removed);
}
