//! The two executors of an agent: names and service rules share no thread with the kubelet, so that what pods make it wait
//! for does not delay them.

use anyhow::Context;

/// Begins the services on an executor of their own, and then runs the kubelet on another one to its end. It is given what
/// the services have made.
pub(crate) fn apart<S, F>(
    services: impl Future<Output = anyhow::Result<S>>,
    kubelet: impl FnOnce(S) -> F,
) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let (of_services, of_kubelet) = (executor("services")?, executor("kubelet")?);
    let outcome = of_services
        .block_on(services)
        .and_then(|beside| of_kubelet.block_on(kubelet(beside)));
    // Work that is stuck in the kernel must not keep the agent from ending.
    of_kubelet.shutdown_background();
    of_services.shutdown_background();
    outcome
}

fn executor(name: &'static str) -> anyhow::Result<tokio::runtime::Runtime> {
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    threads
        .thread_name(name)
        .enable_all()
        .build()
        .context("starting threads")
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_runtime::Runtime;
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Barrier};
    use std::time::Duration;
    use tokio::runtime::Handle;
    use tokio::sync::mpsc::unbounded_channel;

    /// Time after which a blocked thread counts as stuck for ever.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// Holds every thread of this executor until the barrier that it returns is reached.
    fn hold_all_threads(runtime: &Runtime) -> Arc<Barrier> {
        let threads = Handle::current().metrics().num_workers();
        let (held, released) = (
            Arc::new(Barrier::new(threads + 1)),
            Arc::new(Barrier::new(threads + 1)),
        );
        for _ in 0..threads {
            let (held, released) = (held.clone(), released.clone());
            runtime
                .spawn("stuck", async move {
                    held.wait();
                    released.wait();
                })
                .detach();
        }
        held.wait();
        released
    }

    #[test]
    fn services_answer_while_every_thread_of_the_kubelet_is_stuck() {
        let (question, mut questions) = unbounded_channel::<u8>();
        let (answer, answers) = channel();
        let services = async move {
            let runtime = Runtime::real();
            let answering = async move {
                while let Some(question) = questions.recv().await {
                    answer.send(question + 1).expect("it is waited for");
                }
            };
            runtime.spawn("answers", answering).detach();
            Ok(runtime)
        };
        let kubelet = |beside: Runtime| async move {
            let runtime = Runtime::real().with_components_of(&beside);
            let release = hold_all_threads(&runtime);
            question.send(1).expect("somebody answers");
            let answered = answers.recv_timeout(PATIENCE);
            release.wait();
            assert_eq!(answered, Ok(2));
            Ok(())
        };
        apart(services, kubelet).expect("both end well");
    }
}
