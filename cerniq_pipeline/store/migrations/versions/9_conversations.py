"""Who speaks with us is one person, whichever of their leads it was"""

from alembic import op
import sqlalchemy as sa

revision = "9_conversations"
down_revision = "0003"
branch_labels = None
depends_on = None

# As it was when this migration was written; what schema.py says may move on.
CUI_KEY = r"ltrim(regexp_replace(regexp_replace(btrim(cui), '\.0+$', ''), '[^0-9]', '', 'g'), '0')"


def upgrade() -> None:
    op.add_column('gold_lead_journey', sa.Column('in_conversation', sa.Boolean(), server_default=sa.text('false'), nullable=False, comment='the person spoke with one of us, as this lead or as another: nothing automatic'))
    op.execute("""
        UPDATE gold_lead_journey SET in_conversation = true
        WHERE hold_reason IN ('reply', 'human_takeover')
    """)
    op.create_index('gold_companies_cui_key_idx', 'gold_companies', ['tenant_id', sa.text(CUI_KEY)])
