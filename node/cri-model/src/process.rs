//! Processes, which live and end whether or not the daemon does; and what a daemon makes of their ends.

use crate::Machine;
use crate::program::Program;
use crate::seen::RuntimeEvent;
use crate::store::Phase;
use std::sync::Arc;
use std::time::Duration;

const KILLED: i32 = 137;
/// Longest time in milliseconds from a container's end to the word that it ended for memory.
const MEMORY_REPORTED_AFTER_MS: u64 = 500;

/// A process that was started.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) program: Program,
    pub(crate) started_at: i64,
    /// Time and exit code of its end.
    pub(crate) ended: Option<(i64, i32)>,
}

impl Process {
    pub(crate) fn runs(&self) -> bool {
        self.ended.is_none()
    }
}

impl Machine {
    /// A process begins; its timer is the machine's.
    pub(crate) fn begin_process(self: &Arc<Self>, id: &str, program: Program) -> Process {
        if let Some(seconds) = program.seconds {
            let (machine, id, exit) = (Arc::clone(self), id.to_owned(), program.exit);
            let life = async move {
                machine.runtime.sleep(Duration::from_secs(seconds)).await;
                machine.end_process(&id, exit);
            };
            self.runtime.spawn("container process", life).detach();
        }
        Process {
            program,
            started_at: self.now(),
            ended: None,
        }
    }

    /// A process ends; the daemon, where it lives, learns of it in its own time.
    pub(crate) fn end_process(self: &Arc<Self>, id: &str, exit_code: i32) {
        self.end(id, exit_code, None);
    }

    /// A process ends for memory; that this was the reason, the daemon learns some time after the end.
    pub(crate) fn end_for_memory(self: &Arc<Self>, id: &str) {
        let late = Duration::from_millis(1 + self.runtime.random_u64() % MEMORY_REPORTED_AFTER_MS);
        self.end(id, KILLED, Some(late));
    }

    fn end(self: &Arc<Self>, id: &str, exit_code: i32, memory_reported_after: Option<Duration>) {
        let now = self.now();
        let ended = self.store.lock().process(id).is_some_and(|process| {
            let ends = process.runs();
            process.ended.get_or_insert((now, exit_code));
            ends
        });
        if !ended {
            return;
        }
        self.note(RuntimeEvent::Ended(id.to_owned(), exit_code));
        if let Some((runtime, _)) = self.life() {
            let (machine, id) = (Arc::clone(self), id.to_owned());
            let hear = async move {
                machine.lag().await;
                machine.publish_exit(&id, exit_code);
                machine.lag().await;
                machine.settle(&id);
                if let Some(late) = memory_reported_after {
                    machine.runtime.sleep(late).await;
                    machine.name_memory(&id);
                }
            };
            runtime.spawn("exit of a process", hear).detach();
        }
    }

    pub(crate) fn terminate(self: &Arc<Self>, id: &str) {
        let program = self
            .store
            .lock()
            .process(id)
            .map(|process| process.program.clone());
        if let Some(code) = program.and_then(|program| program.on_term) {
            self.end_process(id, code);
        }
    }

    pub(crate) fn kill_process(self: &Arc<Self>, id: &str) {
        self.end_process(id, KILLED);
    }

    /// Writes down how a process ended.
    fn settle(&self, id: &str) {
        let mut store = self.store.lock();
        let group = self.write_end(&mut store, id);
        drop(store);
        if let Some(group) = group {
            // Best effort, as runc's.
            let _ = self.groups.remove(&group);
        }
        self.changed();
    }

    fn name_memory(&self, id: &str) {
        if let Some(container) = self.store.lock().containers.get_mut(id) {
            "OOMKilled".clone_into(&mut container.reason);
        }
        self.publish_out_of_memory(id);
        self.changed();
    }

    fn write_end(&self, store: &mut crate::store::Store, id: &str) -> Option<String> {
        if let Some(sandbox) = store.sandboxes.get_mut(id) {
            sandbox.phase = Phase::Exited;
            return Some(sandbox.group(id));
        }
        let container = store.containers.get_mut(id)?;
        let (at, code) = container.process.as_ref()?.ended?;
        container.phase = Phase::Exited;
        (container.finished_at, container.exit_code) = (at, code);
        container.reason = if code == 0 { "Completed" } else { "Error" }.to_owned();
        let sandbox_id = container.sandbox_id.clone();
        Some(store.sandboxes.get(&sandbox_id)?.group(id))
    }

    /// Recovers in a new daemon: unfinished objects, and processes that ended or began unnoticed.
    pub(crate) fn recover(self: &Arc<Self>) {
        let mut store = self.store.lock();
        let store_now = &mut *store;
        store_now.names.clear();
        let mut ended = Vec::new();
        for sandbox in store_now.sandboxes.values_mut() {
            store_now.names.insert(sandbox.name.clone(), sandbox.id.clone());
            let runs = sandbox.process.as_ref().is_some_and(Process::runs);
            sandbox.phase = if runs { Phase::Running } else { Phase::Exited };
            sandbox.complete = true;
        }
        for container in store_now.containers.values_mut() {
            store_now
                .names
                .insert(container.name.clone(), container.id.clone());
            let was_complete = std::mem::replace(&mut container.complete, true);
            (container.starting, container.removing) = (false, false);
            match &container.process {
                None if !was_complete => container.phase = Phase::Unknown,
                None => {}
                Some(process) if process.runs() => {
                    container.phase = Phase::Running;
                    container.started_at = process.started_at;
                }
                Some(process) => {
                    container.started_at = process.started_at;
                    ended.push(container.id.clone());
                }
            }
        }
        for id in ended {
            self.write_end(store_now, &id);
        }
        drop(store);
        self.changed();
    }
}
