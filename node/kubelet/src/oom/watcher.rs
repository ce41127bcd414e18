//! The loop that reads the kernel's log for ever.

use std::convert::Infallible;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use machinery_runtime::LogThrottle;
use node_sys::kernel_log::KernelLogReader;

use super::parsing::{OomKill, OomParser};
use super::seen::Seen;
use crate::api::events::EventType;
use crate::managers::ManagerContext;

const EVENT: &str = "SystemOOM";
/// The group of the whole machine.
const MACHINE: &str = "/";
/// Events of a machine that runs out of memory again and again: upstream's recorder lets as many pass at once.
const EVENTS_MAX: u32 = 25;
const EVENTS_INTERVAL: Duration = Duration::from_secs(3_600);
/// So many records are read without a pause: a program that fills the log takes no more of a processor.
const RECORDS_AT_ONCE: u32 = 256;
const PAUSE: Duration = Duration::from_millis(100);
/// A log that cannot be read, in a container say, is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(300);

/// Watches for ever.
pub(crate) async fn run(context: ManagerContext) {
    let node = context.registered().await;
    let boot_id = context.kernel_log.boot_id();
    let folder = context.config.data_dir.clone();
    let loading = context.runtime.blocking(move || Seen::load(&folder, boot_id));
    let Ok(seen) = loading.await else { return };
    let mut watcher = Watcher {
        events: LogThrottle::new(EVENTS_MAX, EVENTS_INTERVAL),
        context,
        node: (*node).clone(),
        seen,
    };
    loop {
        let Err(error) = watcher.follow().await;
        tracing::warn!(%error, "OOM events of the kernel's log cannot be read");
        watcher.context.runtime.sleep(AGAIN_AFTER).await;
    }
}

struct Watcher {
    context: ManagerContext,
    node: Node,
    events: LogThrottle,
    seen: Seen,
}

impl Watcher {
    async fn follow(&mut self) -> std::io::Result<Infallible> {
        let mut reader = self.context.kernel_log.open()?;
        let mut parser = OomParser::default();
        loop {
            for _ in 0..RECORDS_AT_ONCE {
                self.step(reader.as_mut(), &mut parser).await?;
            }
            self.context.runtime.sleep(PAUSE).await;
        }
    }

    async fn step(
        &mut self,
        reader: &mut dyn KernelLogReader,
        parser: &mut OomParser,
    ) -> std::io::Result<()> {
        let Some(record) = reader.next().await? else {
            return Ok(());
        };
        let kill = parser.read(&record.text);
        let Some(kill) = kill.filter(|_| self.seen.is_new(record.sequence)) else {
            return Ok(());
        };
        if kill.limited != MACHINE {
            // A pod's own limit, as often as it likes: nothing is written of it.
            tracing::debug!(
                group = kill.limited,
                process = kill.process,
                pid = kill.pid,
                "OOM kill in a group"
            );
            return Ok(());
        }
        self.seen.advance(record.sequence);
        let seen = self.seen.clone();
        // One that is not written is reported again by the next agent.
        let _ = self.context.runtime.blocking(move || seen.save()).await;
        self.report(&kill);
        Ok(())
    }

    fn report(&self, kill: &OomKill) {
        let Some(left_out) = self.events.should_log(self.context.runtime.monotonic()) else {
            return;
        };
        tracing::warn!(
            process = kill.process,
            pid = kill.pid,
            left_out,
            "the machine ran out of memory"
        );
        let message = format!(
            "System OOM encountered, victim process: {}, pid: {}",
            kill.process, kill.pid
        );
        let events = &self.context.workers.events;
        events.node(&self.node, EventType::Warning, EVENT, message);
    }
}
