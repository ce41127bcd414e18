//! The assembled API server: listener, filters, start-up steps.
