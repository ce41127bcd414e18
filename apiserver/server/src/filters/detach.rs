//! A mutation that has begun to write is carried out: it runs in a task of its own, whatever happens to its client. It
//! keeps its seats, and no write is begun once its deadline is over. Until its first write, and so to its end where it is a
//! dry run, it ends with its client.

use super::completion::{Completion, Outcome};
use super::filter::{Filter, Next};
use super::priority_and_fairness::Executing;
use super::{panic_recovery, refuse};
use crate::exchange::{RequestExchange, Response};
use crate::state::ServerState;
use apiserver_registry::{PointOfNoReturn, RegistryError};
use futures::future::BoxFuture;
use machinery_runtime::{Runtime, TaskEnded, TaskHandle};
use std::sync::Arc;

pub(crate) struct Detach(Runtime);

impl Detach {
    pub(crate) fn new(core: &Arc<ServerState>) -> Self {
        Self(core.mutations.runtime().clone())
    }
}

impl Filter for Detach {
    fn call(&self, exchange: RequestExchange, next: Next) -> BoxFuture<'static, Response> {
        if !exchange.is_mutating() || exchange.is_long_running() {
            return next.run(exchange);
        }
        let executing = exchange.request.extensions().get::<Executing>().cloned();
        let completion = Completion::of(&exchange);
        let of_task = completion.clone();
        let point = exchange.context.point_of_no_return.clone();
        // A component of the process carries its own out, where it gives way to clients.
        let task = self.0.here().spawn("mutation", async move {
            let response = next.run(exchange).await;
            if let Some(completion) = &of_task {
                completion.ended(Outcome::Answered(response.status().as_u16()));
            }
            drop(executing);
            response
        });
        let mut client = Client { task, point };
        Box::pin(async move {
            match (&mut client.task).await {
                Ok(response) => response,
                Err(TaskEnded::Panicked(_)) => {
                    if let Some(completion) = &completion {
                        completion.ended(Outcome::Panicked);
                    }
                    refuse(&panic_recovery::panicked())
                }
                Err(TaskEnded::Cancelled) => refuse(&RegistryError::Unavailable(
                    "the server is shutting down".to_owned(),
                )),
            }
        })
    }
}

/// The client's side of a mutation: dropped before the answer, the client has left.
struct Client {
    task: TaskHandle<Response>,
    point: PointOfNoReturn,
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.point.abandon() {
            self.task.abort();
        }
    }
}
