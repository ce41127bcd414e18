//! Requests of one namespace, checked together.

use super::{Configuration, UsageError, UsageWriter, quotas};
use crate::{AdmissionError, Request};
use futures::channel::oneshot;
use machinery_meta::GroupResource;
use machinery_meta::reader::ObjectReader;
use machinery_runtime::Runtime;
use machinery_semantics::quota::{Asked, Quota, Refusal, check_request};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// A batch is checked so often again when a quota has changed meanwhile.
const RETRIES: usize = 3;

type Answer = Result<(), AdmissionError>;

/// See the module.
pub(super) struct Batches {
    reader: Arc<dyn ObjectReader>,
    writer: Arc<dyn UsageWriter>,
    configuration: Configuration,
    runtime: Runtime,
    /// Waiting requests by namespace; a namespace is here while a task works on it.
    waiting: Mutex<HashMap<String, Vec<Waiter>>>,
}

/// A request that waits. Their number is that of the requests that the server handles at a time.
struct Waiter {
    asked: Asked,
    group: String,
    resource: String,
    dry_run: bool,
    answer: oneshot::Sender<Answer>,
}

/// A waiter of the batch in work: answered, or admitted once usage is written.
struct Checked {
    waiter: Waiter,
    decided: Option<Answer>,
}

impl Batches {
    pub(super) fn new(
        reader: Arc<dyn ObjectReader>,
        writer: Arc<dyn UsageWriter>,
        configuration: Configuration,
        runtime: &Runtime,
    ) -> Self {
        Self {
            reader,
            writer,
            configuration,
            runtime: runtime.clone(),
            waiting: Mutex::default(),
        }
    }

    pub(super) fn limits_by_default(&self) -> bool {
        !self.configuration.limited.is_empty()
    }

    /// The answer to a request, with those that wait in its namespace.
    pub(super) async fn ask(self: &Arc<Self>, request: &Request<'_>, asked: Asked) -> Answer {
        let (answer, answered) = oneshot::channel();
        let waiter = Waiter {
            asked,
            group: request.group.to_owned(),
            resource: request.resource.to_owned(),
            dry_run: request.dry_run,
            answer,
        };
        self.enqueue(request.namespace, waiter);
        answered.await.unwrap_or_else(|_| {
            Err(AdmissionError::Internal(
                "resource quota evaluation ended early".to_owned(),
            ))
        })
    }

    fn enqueue(self: &Arc<Self>, namespace: &str, waiter: Waiter) {
        let mut waiting = self.waiting.lock();
        if let Some(batch) = waiting.get_mut(namespace) {
            batch.push(waiter);
            return;
        }
        waiting.insert(namespace.to_owned(), vec![waiter]);
        drop(waiting);
        let (own, namespace) = (Arc::clone(self), namespace.to_owned());
        drop(self.runtime.spawn_request("resource quota", async move {
            let turn = Turn(&own, &namespace);
            while let Some(batch) = turn.next() {
                own.decide(&namespace, batch).await;
            }
        }));
    }

    async fn decide(&self, namespace: &str, batch: Vec<Waiter>) {
        let mut batch: Vec<Checked> = batch
            .into_iter()
            .filter(|waiter| !waiter.answer.is_canceled())
            .map(|waiter| Checked {
                waiter,
                decided: None,
            })
            .collect();
        let failed = self.check(namespace, &mut batch).await;
        for checked in batch {
            let answer = checked.decided.unwrap_or_else(|| failed.clone());
            // The request may have ended.
            drop(checked.waiter.answer.send(answer));
        }
    }

    /// Decides about every request of a batch; the result is for those without a decision of their own.
    async fn check(&self, namespace: &str, batch: &mut [Checked]) -> Answer {
        let mut current = quotas(&*self.reader, namespace).await?;
        for attempt in 0..=RETRIES {
            let before = current.clone();
            self.check_each(&mut current, batch);
            let changed = before
                .into_iter()
                .zip(&current)
                .filter(|(old, new)| old.used != new.used);
            let changed: Vec<&Quota> = changed.map(|(_, new)| new).collect();
            let Some((moved, error)) = self.write(namespace, &changed).await else {
                return Ok(());
            };
            if attempt == RETRIES {
                return Err(match error {
                    UsageError::Conflict => AdmissionError::Conflict {
                        resource: GroupResource::new("", "resourcequotas"),
                        name: moved.into_iter().next().unwrap_or_default(),
                    },
                    UsageError::Failed(why) => AdmissionError::Internal(why),
                });
            }
            // As upstream: those that were written hold; only the others are looked at again.
            current = quotas(&*self.reader, namespace).await?;
            current.retain(|quota| moved.contains(&quota.name));
        }
        Ok(())
    }

    fn check_each(&self, quotas: &mut [Quota], batch: &mut [Checked]) {
        let now = self.runtime.now();
        for checked in batch.iter_mut().filter(|own| own.decided.is_none()) {
            let waiter = &checked.waiter;
            let of = (waiter.group.as_str(), waiter.resource.as_str());
            let limited = &self.configuration.limited;
            let before: Option<Vec<Quota>> = waiter.dry_run.then(|| quotas.to_vec());
            checked.decided = match check_request(quotas, &waiter.asked, of, limited, now) {
                Err(Refusal::Forbidden(why)) => Some(Err(AdmissionError::Forbidden(why))),
                Err(Refusal::Error(why)) => Some(Err(AdmissionError::Unclassified(why))),
                Ok(changed) => (waiter.dry_run || !changed).then_some(Ok(())),
            };
            if let Some(before) = before {
                quotas.clone_from_slice(&before);
            }
        }
    }

    /// The names of quotas whose usage was not written, and why.
    async fn write(&self, namespace: &str, changed: &[&Quota]) -> Option<(Vec<String>, UsageError)> {
        let mut failed: Option<(Vec<String>, UsageError)> = None;
        for quota in changed {
            let used = quota.used.clone().unwrap_or_default();
            let written = self
                .writer
                .write(namespace, &quota.name, &quota.resource_version, &used);
            if let Err(error) = written.await {
                let names = failed.take().map(|(names, _)| names).unwrap_or_default();
                let names = names.into_iter().chain([quota.name.clone()]);
                failed = Some((names.collect(), error));
            }
        }
        failed
    }
}

/// The turn of a namespace's task. It ends when no request waits, or with the task: then those that wait are answered.
struct Turn<'b>(&'b Batches, &'b str);

impl Turn<'_> {
    /// All that wait, or the end of the turn.
    fn next(&self) -> Option<Vec<Waiter>> {
        let mut waiting = self.0.waiting.lock();
        let batch = std::mem::take(waiting.get_mut(self.1)?);
        if batch.is_empty() {
            waiting.remove(self.1);
            return None;
        }
        Some(batch)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.waiting.lock().remove(self.1);
    }
}
