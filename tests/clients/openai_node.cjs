// What the openai package for Node makes of a server: node openai_node.cjs URL, JSON on stdout.

const OpenAI = require("openai");

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "any", maxRetries: 0 });
const cities = { type: "string", enum: ["Oslo", "Rome"] };
const parameters = {
  type: "object",
  properties: { city: cities },
  required: ["city"],
  additionalProperties: false,
};
const messages = [{ role: "user", content: "the inn" }];
const asked = { model: "tiny", messages, seed: 1, temperature: 0 };
const usage = { stream_options: { include_usage: true } };

const reply = (completion) => ({
  content: completion.choices[0].message.content,
  finish_reason: completion.choices[0].finish_reason,
  tokens: completion.usage.completion_tokens,
  calls: (completion.choices[0].message.tool_calls ?? []).map(({ function: call }) => [call.name, call.arguments]),
});

async function chats() {
  const plain = { ...asked, max_tokens: 8 };
  const called = {
    ...asked,
    max_tokens: 300,
    tools: [{ type: "function", function: { name: "weather", parameters } }],
    tool_choice: "required",
    parallel_tool_calls: false,
  };
  const held = {
    ...asked,
    max_tokens: 300,
    response_format: { type: "json_schema", json_schema: { name: "x", schema: parameters } },
  };
  const found = {};
  for (const [name, fields] of Object.entries({ plain, called, held })) {
    const whole = await client.chat.completions.create(fields);
    const stream = client.chat.completions.stream({ ...fields, ...usage });
    found[name] = {
      whole: reply(whole),
      streamed: reply(await stream.finalChatCompletion()),
    };
  }
  return found;
}

async function responses() {
  const fields = { model: "tiny", input: "the inn", max_output_tokens: 16, temperature: 0 };
  const whole = await client.responses.create(fields);
  const kinds = [];
  const stream = client.responses.stream(fields);
  for await (const event of stream) kinds.push(event.type);
  const streamed = await stream.finalResponse();
  return { whole: whole.output_text, streamed: streamed.output_text, last: kinds.at(-1) };
}

async function stopped() {
  const stream = await client.chat.completions.create({
    ...asked,
    stream: true,
    ignore_eos: true,
  });
  for await (const chunk of stream) if (chunk.choices[0].delta.content) break;
  return stream.controller.signal.aborted;
}

async function refused(ask) {
  try {
    await ask();
  } catch (error) {
    return { name: error.constructor.name, status: error.status, code: error.code };
  }
  return null;
}

async function main() {
  const embedded = await client.embeddings.create({ model: "tiny", input: ["the inn", "a cat"] });
  const completed = await client.completions.create({
    model: "tiny",
    prompt: "the inn",
    max_tokens: 4,
    temperature: 0,
  });
  const other = { ...asked, model: "nobody" };
  const long = [{ role: "user", content: "long ".repeat(5000) }];
  const found = {
    models: (await client.models.list()).data.map((model) => model.id),
    chats: await chats(),
    responses: await responses(),
    completed: completed.choices[0].text,
    embedded: embedded.data.map((entry) => entry.embedding),
    stopped: await stopped(),
    unknown: await refused(() => client.chat.completions.create(other)),
    overlong: await refused(() => client.chat.completions.create({ ...asked, messages: long })),
  };
  console.log(JSON.stringify(found));
}

main();
