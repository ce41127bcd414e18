//! Connections the API server opens: kubelets, webhooks, aggregated servers.
