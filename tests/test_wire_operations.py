"""Section 4 of the page as a table, typed out here."""

import pytest

from bothy_hermes.wire_operations import OPERATIONS, Operation

# operation, call, token, body -> answer, success, query, conditional headers
TABLE = """
getMe | GET /me | A | - -> Me | 200 | | |
getJwks | GET /jwks.json | | - -> KeySetBody | 200 | | |
openGateway | GET /agents/{agent_id}/gateway | A | - -> - | 101 | consumer | |
getAllowList | GET /agents/{agent_id}/allow-list | A | - -> AllowList | 200 | | if_none_match |
putHeartbeat | PUT /agents/{agent_id}/heartbeat | A | Heartbeat -> - | 204 | consumer | |
listRuns | GET /agents/{agent_id}/runs | A | - -> RunList | 200 | state consumer | |
getServedChannelConfig | GET /channels/{channel_id}/served-config | R | - -> ServedChannelConfig | 200 | | |
startRun | POST /runs/{run_id}/start | R | StartRun -> RunView | 200 | | |
getRun | GET /runs/{run_id} | RA | - -> RunView | 200 | | |
getRunContext | GET /runs/{run_id}/context | R | - -> RunContext | 200 | | |
renewRunToken | POST /runs/{run_id}/token | RA | - -> TokenAnswer | 200 | | |
updateRun | PATCH /runs/{run_id}/document | R | UpdateRun -> DocumentVersion | 200 | | |
createMessage | POST /runs/{run_id}/messages | R | CreateMessage -> Message | 201 | | |
updateMessage | PATCH /messages/{message_id} | R | UpdateMessage -> Message | 200 | | if_match |
awaitRunInput | POST /runs/{run_id}/await-input | R | AwaitRunInput -> RunView | 200 | | |
resumeRun | POST /runs/{run_id}/resume | R | ResumeRun -> RunView | 200 | | |
closeCard | POST /messages/{message_id}/close | R | CloseCard -> Message | 200 | | |
reportFollowup | PUT /runs/{run_id}/followups/{message_id} | R | Followup -> Followup | 200 | | |
respondToInteraction | POST /interactions/{interaction_id}/response | R | InteractionResponse -> InteractionView | 200 | | |
finishRun | POST /runs/{run_id}/finish | R | FinishRun -> RunView | 200 | | |
reportAgentSession | PUT /threads/{thread_id}/agent-session | R | ReportAgentSession -> AgentSession | 200 | | if_match |
setThreadTitle | PUT /threads/{thread_id}/title | R | SetThreadTitle -> ThreadView | 200 | | if_match |
downloadFile | GET /files/{file_id} | R | - -> - | 200 | | |
"""  # noqa: E501  # a row of the page is a line here

ROWS = [[cell.strip() for cell in line.split("|")[:7]] for line in TABLE.strip().splitlines()]


def row_of(operation: Operation):
    """An operation in the words of the table."""
    body, answer = (cls.__name__ if cls else "-" for cls in (operation.body, operation.answer))
    return [
        operation.name,
        f"{operation.method} {operation.path}",
        "".join(letter for letter, kind in (("R", "run"), ("A", "agent")) if kind in operation.tokens),
        f"{body} -> {answer}",
        str(operation.status),
        " ".join(operation.query),
        " ".join(name for name in ("if_match", "if_none_match") if getattr(operation, name)),
    ]


@pytest.mark.parametrize(
    ("operation", "row"), list(zip(OPERATIONS, ROWS, strict=True)), ids=[row[0] for row in ROWS]
)
def test_an_operation_is_as_the_page_has_it(operation, row):
    """Call, token, body, answer, success, query and preconditions."""
    assert row_of(operation) == row


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_only_reads_change_nothing(operation):
    """What changes something is repeated only as the page says."""
    reads = {
        "getMe",
        "getJwks",
        "openGateway",
        "getAllowList",
        "listRuns",
        "getServedChannelConfig",
        "getRun",
        "getRunContext",
        "downloadFile",
    }
    assert operation.changes == (operation.name not in reads)
