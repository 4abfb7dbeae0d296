"""What others may write into the row of a tenant

A row that breaks a check stays as it is, and that check is for what is written from now on: to put
something in the place of its hours or its policy would be a guess, and nothing is sent for a tenant
whose row cannot be read. No stop of a person changes such a row; who changes it is the one to mend it.
"""

from alembic import op

revision = "9_tenant_data"
down_revision = "9_retention"
branch_labels = None
depends_on = None

CHECKS = {
    'time_zone': "timezone(time_zone, '2000-01-01 00:00:00+00'::timestamptz) IS NOT NULL",
    'working_days': "working_days <@ '{1,2,3,4,5,6,7}'::smallint[]",
    'channels': "array_position(channels, NULL) IS NULL",
    'basis_policy': "jsonb_typeof(basis_policy) = 'object' AND NOT jsonb_path_exists(basis_policy, 'strict $.* ? (@.type() != \"array\")', '{}', true) AND NOT jsonb_path_exists(basis_policy, 'strict $.*[*] ? (@.type() != \"string\")', '{}', true)",
    'counts': "least(gap_least_seconds, gap_spread_seconds, media_gap_least_seconds, media_gap_spread_seconds, failover_after_minutes, weekly_per_person, weekly_per_company, unanswered_per_month, alike_texts, heartbeat_minutes) >= 0",
}


def upgrade() -> None:
    for name, condition in CHECKS.items():
        constraint = op.f(f'tenants_{name}_check')
        # By Postgres' own words: SQLAlchemy would take the colons of a cast for a parameter.
        conn = op.get_bind()
        conn.exec_driver_sql(f"ALTER TABLE tenants ADD CONSTRAINT {constraint} CHECK ({condition}) NOT VALID")
        conn.exec_driver_sql(f"""
            DO $$ BEGIN
              ALTER TABLE tenants VALIDATE CONSTRAINT {constraint};
            EXCEPTION WHEN check_violation OR invalid_parameter_value THEN
              RAISE NOTICE 'a row of tenants breaks {constraint}';
            END $$
        """)
