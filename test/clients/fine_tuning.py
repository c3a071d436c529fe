"""Fine-tunes a model with the unmodified `openai` package, by its base URL alone. Argument: a file with training data."""

import sys
import time

import openai

client = openai.OpenAI(max_retries=0)
with open(sys.argv[1], "rb") as data:
    file = client.files.create(file=data, purpose="fine-tune")
broken = client.files.create(file=("broken.jsonl", b"{}\n"), purpose="fine-tune")
try:
    client.fine_tuning.jobs.create(model="whetstone-tiny", training_file=broken.id)
except openai.BadRequestError as error:
    print(type(error).__name__, error.param)

job = client.fine_tuning.jobs.create(
    model="whetstone-tiny",
    training_file=file.id,
    suffix="py",
    method={"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 1, "batch_size": "auto"}}},
)
while job.status not in ("succeeded", "failed", "cancelled"):
    time.sleep(0.1)
    job = client.fine_tuning.jobs.retrieve(job.id)
print(job.status, job.fine_tuned_model)
assert [event.level for event in client.fine_tuning.jobs.list_events(job.id)][-1] == "info"
assert client.fine_tuning.jobs.checkpoints.list(job.id).data[0].step_number == 8
client.chat.completions.create(model=job.fine_tuned_model, messages=[{"role": "user", "content": "reverse: abc"}], max_tokens=4)
print("deleted", client.files.delete(file.id).deleted)
