"""How Alembic runs the migrations: within the transaction that it is handed."""

from alembic import context

from teaching_service.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=False,
    render_as_batch=True,
)
context.run_migrations()
